import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  Cancelled,
  Chain,
  ConstraintClient,
  type ConstraintdError,
  DeadlineExceeded,
  type DecodeStream,
  regex,
  retrying,
  type Session,
  samplerConfig,
  temperature,
  topK,
  Unavailable,
  unconstrained,
  type VocabularyInfo,
} from "../../src/index.js";
import { BYTE_VOCABULARY } from "../../toy/byte_vocabulary.js";
import { MadeUpModel } from "../../toy/made_up_logits.js";
import { Served } from "../processes.js";
import { because } from "../refusals.js";

const [A, B] = [97, 98];

describe("a Decode stream", () => {
  let daemon: Served;
  let client: ConstraintClient;
  let vocabulary: VocabularyInfo;

  before(async () => {
    daemon = await Served.daemon({ keeping: true });
    client = new ConstraintClient(daemon.address);
    vocabulary = await client.registerTokenTable(BYTE_VOCABULARY);
  });
  after(async () => {
    client.close();
    await daemon.clear();
  });

  const open = (pattern = "[ab]{60}") =>
    client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint: regex(pattern) });
  const report = (session: Session, ...tokens: number[]) => ({ session, tokens, surprisals: tokens.map(() => 1) });

  test("many sessions step in one batch, and each takes its own answer, in any order", async () => {
    using stream = await client.decodeStream(vocabulary);
    const sessions = await Promise.all(Array.from({ length: 40 }, () => open()));
    stream.send(sessions.map((session, index) => report(session, index % 2 ? A : B)));
    for (const session of [...sessions].reverse()) {
      const directive = await stream.take(session);
      assert.deepEqual([directive.kind, directive.position, session.position], ["mask", 1, 1]);
    }
    assert.equal(stream.opened, 1);
  });

  test("a refused step harms only its own session", async () => {
    using stream = await client.decodeStream(vocabulary);
    const [good, bad, gone, finished] = await Promise.all([open(), open(), open(), open("a")]);
    await client.resumeSession(gone.id);
    stream.send([report(good, A), report(bad, 33), report(gone, A), report(finished, A)]);
    await assert.rejects(stream.take(bad), (error: ConstraintdError) => {
      because("TOKEN_NOT_ALLOWED")(error);
      assert.deepEqual([error.code, error.illegalIndex], [undefined, 0]);
      return true;
    });
    await assert.rejects(stream.take(gone), because("STALE_EPOCH"));
    assert.equal((await stream.take(finished)).kind, "finish");
    assert.equal((await stream.take(good)).position, 1);
    stream.send([report(bad, A)]);
    assert.equal((await stream.take(bad)).position, 1);
  });

  test("a gap, an older position and other tokens are told apart", async () => {
    using stream = await client.decodeStream(vocabulary);
    const session = await open();
    const step = async (position: number, token: number) => {
      session.directive = { ...session.directive, position };
      stream.send([report(session, token)]);
      return (await stream.take(session)).position;
    };
    assert.equal(await step(0, A), 1);
    assert.equal(await step(0, A), 1);
    await assert.rejects(step(0, B), (error: ConstraintdError) => {
      assert.deepEqual([error.reason, ...error.loggedTokens], ["POSITION_CONFLICT", A]);
      return true;
    });
    await assert.rejects(step(9, A), (error: ConstraintdError) => {
      assert.deepEqual([error.reason, error.expectedPosition], ["POSITION_GAP", 1]);
      return true;
    });
    assert.equal(await step(1, B), 2);
    await assert.rejects(step(0, A), because("STALE_POSITION"));
  });

  test("what can't be sent is refused before anything is", async () => {
    using stream = await client.decodeStream(vocabulary);
    const [first, second] = await Promise.all([open(), open()]);
    assert.throws(() => stream.send([report(first, A), report(first, A)]), /has an unanswered step/);
    assert.throws(() => stream.send([report(first, A), report(second, -1)]), /uint32/);
    assert.throws(() => stream.send([{ session: first, tokens: [A], surprisals: [] }]), /1 tokens but 0 surprisals/);
    await assert.rejects(stream.take(first), /nothing unanswered was sent/);
    stream.send([report(first, A)]);
    assert.throws(() => stream.send([report(first, A)]), /has an unanswered step/);
    const taking = stream.take(first);
    await assert.rejects(stream.take(first), /being taken already/);
    assert.equal((await taking).position, 1);
  });

  test("what is wrong with the stream itself makes it fail at once, and the step stays", async () => {
    const session = await open();
    using wide = await client.decodeStream({ ...vocabulary, logitsWidth: 301 });
    wide.send([report(session, A)]);
    await assert.rejects(wide.take(session), because("LOGITS_WIDTH_MISMATCH"));
    assert.throws(() => wide.send([report(session, A)]), because("LOGITS_WIDTH_MISMATCH"));
    using unknown = await client.decodeStream({ ...vocabulary, vocabularyId: "0".repeat(64) });
    unknown.send([report(session, A)]);
    await assert.rejects(unknown.take(session), because("UNKNOWN_VOCABULARY"));
    assert.equal((await client.getSession(session.id)).tokens.length, 0);
  });

  test("whoever waits is told when the stream is closed, and a closed one takes nothing", async () => {
    const stream = await client.decodeStream(vocabulary);
    const session = await open();
    stream.send([report(session, A)]);
    const taking = stream.take(session);
    stream.close();
    stream.close();
    await assert.rejects(taking, Cancelled);
    assert.throws(() => stream.send([report(session, A)]), /the stream is closed/);
    assert.throws(() => stream.reconnect(), /the stream is closed/);
  });

  test("kill -9 in the middle: the stream mends itself, and no token is lost or doubled", async () => {
    using stream = await client.decodeStream(vocabulary);
    const sampler = samplerConfig([temperature(0.8), topK(30)], { maxTokens: 60, seed: 11 });
    const drive = async (through: DecodeStream) => {
      const constraint = unconstrained();
      const open = () => client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint, sampler });
      const session = await retrying(open);
      const model = new MadeUpModel(300);
      const chain = Chain.of(session.sampler);
      const tokens: number[] = [];
      while (session.directive.kind === "mask") {
        const { token, surprisal } = chain.pick(model.logits(), session.directive);
        through.send([{ session, tokens: [token], surprisals: [surprisal] }]);
        await through.take(session, { timeoutMs: 60_000 });
        model.feed([token]);
        tokens.push(token);
      }
      return { session, tokens };
    };
    const undisturbed = await drive(stream);
    assert.equal(undisturbed.tokens.length, 60);

    const driving = Promise.all(Array.from({ length: 12 }, () => drive(stream)));
    for (const _ of [1, 2]) {
      await new Promise((resolve) => setTimeout(resolve, 40));
      await daemon.kill();
      await daemon.start();
    }
    for (const { session, tokens } of await driving) {
      assert.deepEqual(tokens, undisturbed.tokens);
      assert.deepEqual((await client.getSession(session.id)).tokens, tokens);
    }
    assert.ok(stream.opened >= 2, `the daemon was killed, but only ${stream.opened} streams were opened`);
  });

  test("a daemon that stays away: takers are told in time, and after its return everything goes on", async () => {
    using stream = await client.decodeStream(vocabulary, { patienceMs: 1500 });
    const session = await open();
    await daemon.kill();
    stream.send([report(session, A)]);
    await assert.rejects(stream.take(session, { timeoutMs: 50 }), DeadlineExceeded);
    await assert.rejects(stream.take(session), Unavailable);
    assert.ok(stream.failure instanceof Unavailable);
    await assert.rejects(stream.take(session), Unavailable);
    await daemon.start();
    await retrying(() => client.serverInfo()); // gRPC has noticed, too
    stream.reconnect();
    assert.equal((await stream.take(session)).position, 1);
    stream.send([report(session, B)]);
    assert.equal((await stream.take(session)).position, 2);
    assert.deepEqual((await client.getSession(session.id)).tokens, [A, B]);
  });

  test("a daemon that is stopped by SIGTERM, and comes back, is not noticed by the sessions", async () => {
    using stream = await client.decodeStream(vocabulary);
    const sessions = await Promise.all(Array.from({ length: 6 }, () => open()));
    const run = Promise.all(
      sessions.map(async (session) => {
        for (let position = 0; position < 59; position++) {
          stream.send([report(session, position % 2 ? A : B)]);
          assert.equal((await stream.take(session, { timeoutMs: 60_000 })).position, position + 1);
        }
      }),
    );
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.equal(await daemon.stop(), 0);
    await daemon.start();
    await run;
    for (const session of sessions) {
      const expected = Array.from({ length: 59 }, (_, position) => (position % 2 ? A : B));
      assert.deepEqual((await client.getSession(session.id)).tokens, expected);
    }
  });

  test("the next daemon of a list takes over where one has died", async () => {
    const other = await Served.daemon();
    const several = new ConstraintClient([other.address, daemon.address]);
    await several.registerTokenTable(BYTE_VOCABULARY);
    using stream = await several.decodeStream(vocabulary);
    await other.kill();
    const session = await open();
    stream.send([report(session, A)]);
    assert.equal((await stream.take(session)).position, 1);
    assert.equal(several.target, daemon.address);
    several.close();
    await other.clear();
  });
});
