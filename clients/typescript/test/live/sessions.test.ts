import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import {
  allOf,
  Chain,
  ConstraintClient,
  type ConstraintdError,
  type ConstraintLike,
  type Directive,
  denyRanges,
  jsonSchema,
  minP,
  modelInput,
  ngramPenalty,
  regex,
  type SamplerConfig,
  type Session,
  samplerConfig,
  samplerPreset,
  temperature,
  topK,
  unconstrained,
  type VocabularyInfo,
  windowPenalty,
} from "../../src/index.js";
import { BYTE_VOCABULARY } from "../../toy/byte_vocabulary.js";
import { Served } from "../processes.js";
import { because } from "../refusals.js";

const EOG = 256;
const [A, B, C] = ["a", "b", "c"].map((letter) => letter.charCodeAt(0)) as [number, number, number];

describe("a session at a live daemon", () => {
  let daemon: Served;
  let client: ConstraintClient;
  let vocabulary: VocabularyInfo;

  before(async () => {
    daemon = await Served.daemon();
    client = new ConstraintClient(daemon.address);
    vocabulary = await client.registerTokenTable(BYTE_VOCABULARY);
  });
  after(async () => {
    client.close();
    await daemon.clear();
  });

  const open = (constraint: ConstraintLike, more: { sampler?: SamplerConfig; promptTokens?: number[] } = {}) =>
    client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint, ...more });
  const step = (session: Session, ...tokens: number[]) =>
    client.step({ session, tokens, surprisals: tokens.map(() => 1) });

  test("a step moves the session on, and every refusal leaves it where it was", async () => {
    const session = await open(regex("abc"));
    await assert.rejects(step(session, B), (error: ConstraintdError) => {
      because("TOKEN_NOT_ALLOWED")(error);
      assert.equal(error.illegalIndex, 0);
      return true;
    });
    for (const surprisal of [Number.NaN, -1, Number.POSITIVE_INFINITY]) {
      const report = { session, tokens: [A], surprisals: [surprisal] };
      await assert.rejects(client.step(report), because("INVALID_SURPRISAL"));
    }
    const directive = await step(session, A);
    assert.deepEqual([directive.kind, session.position], ["mask", 1]);

    const ahead = await open(regex("abc"));
    ahead.directive = { ...ahead.directive, position: 2 };
    await assert.rejects(step(ahead, C), (error: ConstraintdError) => {
      because("POSITION_GAP")(error);
      assert.equal(error.expectedPosition, 0);
      return true;
    });
  });

  test("the same step again counts once; another one there is told what was applied", async () => {
    const session = await open(regex("[ab]{5}"));
    const atZero = session.directive;
    await step(session, A);
    const first = session.directive;
    session.directive = atZero;
    assert.deepEqual(await step(session, A), first);
    session.directive = atZero;
    await assert.rejects(step(session, B), (error: ConstraintdError) => {
      because("POSITION_CONFLICT")(error);
      assert.deepEqual([...error.loggedTokens], [A]);
      return true;
    });
    session.directive = first;
    await step(session, B);
    session.directive = atZero;
    await assert.rejects(step(session, A), (error: ConstraintdError) => {
      because("STALE_POSITION")(error);
      assert.equal(error.expectedPosition, 2);
      return true;
    });
  });

  test("whoever was taken over is fenced off, and the new owner has everything to go on", async () => {
    const session = await open(regex("[ab]{5}"), { promptTokens: [C, C] });
    await step(session, A, B);
    const resumed = await client.resumeSession(session.id);
    assert.deepEqual([...modelInput(resumed)], [C, C, A, B]);
    assert.equal(resumed.vocabularyId, vocabulary.vocabularyId);
    assert.equal(resumed.session.seed, session.seed);
    assert.notEqual(resumed.session.epoch, session.epoch);
    await assert.rejects(step(session, A), because("STALE_EPOCH"));
    assert.equal((await step(resumed.session, A)).position, 3);
  });

  test("the same opening again gives the same session, another one there is refused", async () => {
    const sessionId = randomBytes(16);
    const request = { vocabularyId: vocabulary.vocabularyId, constraint: regex("ab"), sessionId };
    const first = await client.openSession(request);
    await step(first, A);
    const again = await client.openSession(request);
    assert.deepEqual([again.epoch, again.seed, again.position], [first.epoch, first.seed, 1]);
    await assert.rejects(client.openSession({ ...request, constraint: regex("b") }), because("ALREADY_EXISTS"));
  });

  test("every finish comes with its reason", async () => {
    const finishOf = (directive: Directive) => {
      assert.equal(directive.kind, "finish");
      return directive.kind === "finish" ? directive.finish : assert.fail();
    };
    const exhausted = finishOf(await step(await open(regex("a")), A));
    assert.deepEqual(
      [exhausted.reason, exhausted.cutOffset, exhausted.constraintIncomplete],
      ["GRAMMAR_EXHAUSTED", 1, false],
    );
    const eog = finishOf(await step(await open(regex("a+")), A, EOG));
    assert.deepEqual([eog.reason, eog.stopId, eog.cutOffset], ["EOG", EOG, 1]);
    const limited = await open(regex("[ab]{9}"), { sampler: samplerConfig([], { maxTokens: 2 }) });
    const length = finishOf(await step(limited, A, B));
    assert.deepEqual([length.reason, length.cutOffset, length.constraintIncomplete], ["LENGTH", 2, true]);
    const stops = samplerConfig([], { stopStrings: ["cb"], stopIds: [C] });
    const text = await open(unconstrained(), { sampler: samplerConfig([], { stopStrings: ["cb"] }) });
    const stopString = finishOf(await step(text, A, C, B));
    assert.deepEqual(
      [stopString.reason, Buffer.from(stopString.stopString).toString(), stopString.cutOffset],
      ["STOP_STRING", "cb", 1],
    );
    const stopId = finishOf(await step(await open(unconstrained(), { sampler: stops }), A, C));
    assert.deepEqual([stopId.reason, stopId.stopId], ["STOP_ID", C]);
    const none = finishOf((await open(regex("a"), { sampler: samplerConfig([], { maxTokens: 0 }) })).directive);
    assert.equal(none.reason, "LENGTH");
    const schema = await open(jsonSchema({ const: 1 }, { whitespace: "compact" }));
    assert.equal(finishOf(await step(schema, "1".charCodeAt(0))).schemaSatisfied, true);
  });

  test("after a finish nothing more is taken, but a new turn goes on", async () => {
    const session = await open(regex("a"));
    await step(session, A);
    await assert.rejects(step(session, A), because("SESSION_FINISHED"));
    const directive = await client.updateSession(session, { newTurn: [B, B], constraint: regex("c"), seed: 5 });
    assert.deepEqual([directive.kind, session.seed], ["mask", 5n]);
    assert.equal((await step(session, C)).kind, "finish");
    assert.deepEqual([...modelInput(await client.resumeSession(session.id))], [A, B, B, C]);
  });

  test("a dead end says what met, and a wider constraint goes on from there", async () => {
    const session = await open(allOf(regex("a[bc]"), denyRanges([[B, C + 1]])));
    const directive = await step(session, A);
    assert.equal(directive.kind, "no_token_allowed");
    assert.ok(directive.kind === "no_token_allowed" && directive.message.length > 0);
    assert.equal((await client.updateSession(session, { constraint: regex("c") })).kind, "mask");
    assert.equal((await step(session, C)).kind, "finish");
  });

  test("a rollback returns, a fork leaves its parent alone, and both repeat under their ids", async () => {
    const session = await open(regex("[abc]{3}"), { sampler: samplerConfig([], { seed: 7 }) });
    const drawAtOne = (await step(session, A)).draw;
    await step(session, B);
    const before = { epoch: session.epoch, directive: session.directive };
    const requestId = randomBytes(16);
    const back = await client.rollbackSession(session, 1, { requestId });
    assert.deepEqual([back.position, back.draw, session.seed], [1, drawAtOne, 7n]);
    const epoch = session.epoch;
    Object.assign(session, before);
    await client.rollbackSession(session, 1, { requestId });
    assert.equal(session.epoch, epoch);

    const newSessionId = randomBytes(16);
    const fork = await client.forkSession(session.id, 0, { newSessionId, seed: 9n });
    assert.deepEqual([fork.position, fork.seed], [0, 9n]);
    assert.equal((await step(session, C)).position, 2);
    assert.deepEqual((await client.getSession(newSessionId)).tokens, []);
    assert.deepEqual((await client.getSession(session.id)).tokens, [A, C]);
  });

  test("an exported session is imported, goes on alike, and a garbled envelope is refused", async () => {
    const session = await open(regex("[abc]{3}"), { sampler: samplerConfig([], { seed: 7 }) });
    const { draw } = await step(session, A);
    const envelope = await client.exportSession(session.id);
    assert.equal(await client.closeSession(session.id), true);
    assert.equal(await client.closeSession(session.id), false);
    await assert.rejects(client.getSession(session.id), because("UNKNOWN_SESSION"));
    const imported = await client.importSession(envelope);
    assert.deepEqual([imported.hexId, imported.position, imported.directive.draw], [session.hexId, 1, draw]);
    await assert.rejects(client.importSession(envelope.slice(0, -3)), because("INVALID_ENVELOPE"));
  });

  test("all sessions are listed, page by page", async () => {
    const opened = await Promise.all([1, 2, 3, 4, 5].map(() => open(unconstrained())));
    const listed: string[] = [];
    for await (const session of client.listSessions({ pageSize: 2 }))
      listed.push(Buffer.from(session.sessionId).toString("hex"));
    assert.ok(opened.every(({ hexId }) => listed.includes(hexId)));
    assert.deepEqual(listed, [...new Set(listed)].sort());
  });

  test("penalties and presets are the daemon's to compute, and the chain's to apply", async () => {
    const penalties = samplerConfig([temperature(0)], {
      windowPenalty: windowPenalty({ repetition: 2, presence: 0.5 }),
      ngramPenalty: ngramPenalty({ mode: "broad" }),
    });
    const session = await open(unconstrained(), { sampler: penalties });
    const { adjustments } = await step(session, A);
    assert.ok(adjustments?.ids.includes(A));
    const logits = new Float32Array(300);
    [logits[A], logits[B]] = [2, 1.5];
    const { directive } = session;
    assert.ok(directive.kind === "mask");
    assert.equal(Chain.of(session.sampler).pick(logits, directive).token, B);

    const preset = await open(unconstrained(), {
      sampler: samplerPreset("openai", { temperature: 0.7, top_p: 0.9 }, { seed: 3 }),
    });
    assert.deepEqual(
      preset.sampler.stages.map(({ stage }) => stage.case),
      ["temperature", "topP"],
    );
    assert.equal(preset.seed, 3n);
    assert.ok(Chain.of(preset.sampler));
    const stages = await open(unconstrained(), { sampler: samplerConfig([minP(0.05), topK(4)]) });
    assert.deepEqual(
      stages.sampler.stages.map(({ stage }) => stage.case),
      ["minP", "topK"],
    );
  });
});
