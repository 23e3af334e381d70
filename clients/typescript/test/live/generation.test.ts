import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import {
  allOf,
  Cancelled,
  ConstraintClient,
  type ConstraintdError,
  choice,
  compiled,
  DeadlineExceeded,
  denyRanges,
  type Generation,
  GenerationClient,
  greedy,
  jsonSchema,
  regex,
  retrying,
  samplerConfig,
  temperature,
  tokenLength,
  toolCalls,
  Unavailable,
  unconstrained,
} from "../../src/index.js";
import { Served, tinyModel } from "../processes.js";
import { because } from "../refusals.js";

const WORDS = regex("([a-z]{1,9}[ ,.]|é){1,2000}");
const DRAWN = samplerConfig([temperature(1.2)], { minTokens: 400, maxTokens: 400, seed: 5 });

describe("a live runner", () => {
  let model: string;
  let daemon: Served;
  let runner: Served;
  let client: GenerationClient;

  before(async () => {
    model = tinyModel();
    daemon = await Served.daemon({ keeping: true });
    runner = await Served.runner(model, daemon.address);
    client = new GenerationClient(runner.address);
  });
  after(async () => {
    client.close();
    await runner.clear();
    await daemon.clear();
    rmSync(model, { recursive: true });
  });

  /** Iterates until so many tokens have come. */
  async function tokensOf(generation: Generation, atLeast: number): Promise<AsyncGenerator> {
    const events = generation.events();
    while (generation.tokenIds.length < atLeast) {
      const { done } = await events.next();
      assert.ok(!done, "it ended early");
    }
    return events;
  }

  /** Iterates to the end. */
  async function drained(events: AsyncIterable<unknown>): Promise<void> {
    for await (const _ of events);
  }

  test("it says what it runs", async () => {
    const info = await client.modelInfo();
    assert.match(info.vocabularyId, /^[0-9a-f]{64}$/);
    assert.ok(info.contextLength > 0 && info.slots > 0);
  });

  test("text comes in pieces, satisfies its schema, and ends with a finish", async () => {
    const constraint = jsonSchema(
      {
        type: "object",
        properties: { name: { type: "string", maxLength: 5 }, old: { type: "boolean" } },
        required: ["name", "old"],
        additionalProperties: false,
      },
      { whitespace: "compact" },
    );
    const generation = client.generate("Invent a person.", { constraint, sampler: samplerConfig([], { seed: 3 }) });
    const pieces: string[] = [];
    for await (const piece of generation) pieces.push(piece);
    const person = JSON.parse(pieces.join(""));
    assert.deepEqual(Object.keys(person).sort(), ["name", "old"]);
    assert.equal(pieces.join(""), generation.text);
    assert.ok(pieces.length > 1 && pieces.every((piece) => piece !== ""));
    assert.equal(generation.finish?.constraintIncomplete, false);
    assert.equal(generation.finish?.schemaSatisfied, true);
    assert.equal(generation.usage?.completionTokens, generation.tokenIds.length);
    assert.equal(generation.seed, 3n);
    await assert.rejects(generation.wait(), /iterated over once/);
  });

  test("events tell the whole story, log probabilities included", async () => {
    const generation = client.generate([5, 6, 7], { constraint: choice(["ab", "cd"]), logprobs: 1 });
    const events = [];
    for await (const event of generation.events()) events.push(event);
    assert.equal(events[0]?.kind, "started");
    assert.equal(events.at(-1)?.kind, "finished");
    assert.ok(["ab", "cd"].includes(generation.text));
    assert.equal(generation.logprobs.length, generation.tokenIds.length);
    const [first] = generation.logprobs;
    assert.equal(first?.taken.tokenId, generation.tokenIds[0]);
    assert.ok((first?.taken.logprob ?? 1) <= 0 && first?.top.length === 1);
    assert.deepEqual([events[0]?.kind === "started" && events[0].promptTokens, generation.usage?.promptTokens], [3, 3]);
  });

  test("every finish comes with its reason", async () => {
    const finish = async (options: Parameters<GenerationClient["generate"]>[1]) => {
      const generation = client.generate("x", options);
      await generation.wait();
      return generation.finish;
    };
    assert.equal((await finish({ constraint: regex("ab") }))?.reason, "GRAMMAR_EXHAUSTED");
    const length = await finish({ constraint: WORDS, sampler: samplerConfig([greedy()], { maxTokens: 1 }) });
    assert.deepEqual([length?.reason, length?.constraintIncomplete], ["LENGTH", true]);
    const stops = samplerConfig([], { stopStrings: ["b"] });
    const stopString = await finish({ constraint: regex("abc"), sampler: stops });
    assert.deepEqual([stopString?.reason, Buffer.from(stopString?.stopString ?? []).toString()], ["STOP_STRING", "b"]);
    const [token = 0] = await oneToken(regex("a"));
    const stopId = await finish({ constraint: regex("abc"), sampler: samplerConfig([], { stopIds: [token] }) });
    assert.deepEqual([stopId?.reason, stopId?.stopId], ["STOP_ID", token]);
    const onlyEnd = allOf(
      unconstrained(),
      denyRanges([
        [0, 1],
        [2, 3],
        [3, 281],
      ]),
    );
    assert.equal((await finish({ constraint: onlyEnd }))?.reason, "EOG");
  });

  async function oneToken(constraint: ReturnType<typeof regex>): Promise<readonly number[]> {
    const generation = client.generate("x", { constraint });
    await generation.wait();
    return generation.tokenIds;
  }

  test("tool calls are taken apart", async () => {
    const parameters = {
      type: "object",
      properties: { n: { enum: [1, 2] } },
      required: ["n"],
      additionalProperties: false,
    };
    const tools = [{ type: "function", function: { name: "count", parameters } }];
    const constraint = toolCalls(tools, { format: "hermes", choice: "required", single: true, whitespace: "compact" });
    const generation = client.generate([{ role: "user", content: "Count." }], { constraint });
    await generation.wait();
    const [call] = generation.toolAnswer?.calls ?? [];
    assert.equal(call?.name, "count");
    assert.ok([1, 2].includes(JSON.parse(call?.arguments ?? "{}").n));
    const answer = client.generate(
      [
        { role: "user", content: "Count." },
        { role: "assistant", tool_calls: generation.toolAnswer?.calls ?? [] },
        { role: "tool", tool_call_id: call?.id ?? "", content: "3" },
      ],
      { constraint: choice(["three"]) },
    );
    assert.equal(await answer.wait(), "three");
    assert.equal(answer.toolAnswer, undefined);
  });

  test("refusals have their reasons, before anything is generated", async () => {
    const refused = (prompt: string, options: Parameters<GenerationClient["generate"]>[1]) =>
      client.generate(prompt, options).wait();
    await assert.rejects(refused("x", { constraint: regex("[a-") }), because("INVALID_GRAMMAR"));
    await assert.rejects(refused("x", { constraint: compiled("0".repeat(64)) }), because("UNKNOWN_GRAMMAR"));
    await assert.rejects(refused("x".repeat(9000), { constraint: WORDS }), because("CONTEXT_EXCEEDED"));
    await assert.rejects(refused("x", { constraint: WORDS, logprobs: 99 }), because("INVALID_FIELD"));
    await assert.rejects(
      refused("y".repeat(80 << 20), { constraint: WORDS }),
      (error: ConstraintdError) => error.code === 8 && error.fragment === "",
    );
  });

  test("a dead end is an error of its own, with the fragment", async () => {
    const tokens = await oneToken(regex("ab"));
    const denied = tokens[1] as number;
    const constraint = allOf(regex("ab"), tokenLength({ min: 1 }), denyRanges([[denied, denied + 1]]));
    await assert.rejects(client.generate("x", { constraint }).wait(), (error: ConstraintdError) => {
      because("NO_TOKEN_ALLOWED")(error);
      assert.equal(error.fragment, "a");
      return true;
    });
  });

  test("leaving the loop, a signal, and cancel each free the place, with the fragment kept", async () => {
    const slots = (await client.modelInfo()).slots;
    for (let round = 0; round <= slots; round++) {
      const left = client.generate("x", { constraint: WORDS, sampler: DRAWN });
      for await (const _ of left) break;

      const controller = new AbortController();
      const aborted = client.generate("x", { constraint: WORDS, sampler: DRAWN, signal: controller.signal });
      const abortedEvents = await tokensOf(aborted, 3);
      controller.abort("enough");
      await assert.rejects(drained(abortedEvents), (error: Cancelled) => {
        assert.ok(error instanceof Cancelled);
        assert.deepEqual([error.cause, error.retryable, error.fragment], ["enough", false, aborted.text]);
        return true;
      });

      const cancelled = client.generate("x", { constraint: WORDS, sampler: DRAWN });
      const events = await tokensOf(cancelled, 3);
      cancelled.cancel();
      await assert.rejects(drained(events), Cancelled);
    }
    assert.equal(await client.generate("x", { constraint: choice(["ok"]) }).wait(), "ok");
    const early = client.generate("x", { constraint: WORDS, signal: AbortSignal.abort() });
    await assert.rejects(early.wait(), Cancelled);
  });

  test("what this side ends leaves the address in use", async () => {
    using two = new GenerationClient([runner.address, `unix:${runner.folder}/nobody`]);
    for (let round = 0; round < 3; round++) {
      const cancelled = two.generate("x", { constraint: WORDS, sampler: DRAWN });
      const events = await tokensOf(cancelled, 3);
      cancelled.cancel();
      await assert.rejects(drained(events), Cancelled);
      assert.equal(await two.generate("x", { constraint: choice(["ok"]) }).wait(), "ok");
      assert.equal(two.target, runner.address);
    }
  });

  test("a deadline ends it, with the text so far", async () => {
    const generation = client.generate("x", { constraint: WORDS, sampler: DRAWN, timeoutMs: 250, resumable: true });
    await assert.rejects(generation.wait(), (error: ConstraintdError) => {
      assert.ok(error instanceof DeadlineExceeded);
      assert.equal(error.fragment, generation.text);
      return true;
    });
    assert.ok(generation.tokenIds.length < 400);
    if (generation.sessionId) assert.equal(await client.closeGeneration(generation.sessionId), true);
  });

  test("a resumable generation is taken up where it was left, and its first reader is fenced off", async () => {
    const options = { constraint: WORDS, sampler: DRAWN, resumable: true };
    const whole = client.generate("x", options);
    await whole.wait();

    const first = client.generate("x", options);
    const events = await tokensOf(first, 20);
    const { seen, text } = first;
    const resumed = client.resume(first.sessionId ?? assert.fail(), { seen });
    await resumed.wait();
    assert.deepEqual([...first.tokenIds.slice(0, seen.tokens), ...resumed.tokenIds], [...whole.tokenIds]);
    assert.equal(text + resumed.text, whole.text);
    await assert.rejects(drained(events), because("STALE_EPOCH"));

    const tooFar = client.resume(first.sessionId ?? assert.fail(), { seen: { tokens: 999, textBytes: 0 } });
    await assert.rejects(tooFar.wait(), (error: ConstraintdError) => {
      because("INVALID_FIELD")(error);
      assert.equal(error.expectedPosition, 400);
      return true;
    });
    for (const { sessionId } of [whole, first]) {
      assert.equal(await client.closeGeneration(sessionId ?? assert.fail()), true);
      assert.equal(await client.closeGeneration(sessionId ?? assert.fail()), false);
    }
    await assert.rejects(client.resume(randomBytes(16)).wait(), because("UNKNOWN_SESSION"));
  });

  test("kill -9 of the runner: a resumable generation goes on at the next one, any other has failed", async () => {
    const options = { constraint: WORDS, sampler: DRAWN, resumable: true };
    const whole = client.generate("x", options);
    await whole.wait();

    const mortal = await Served.runner(model, daemon.address);
    const both = new GenerationClient([mortal.address, runner.address]);
    const lost = both.generate("x", { ...options, resumable: false });
    const lostEvents = await tokensOf(lost, 10);
    const kept = both.generate("x", options);
    const pieces: string[] = [];
    for await (const piece of kept) {
      pieces.push(piece);
      if (pieces.length === 10) await mortal.kill();
    }
    assert.deepEqual([...kept.tokenIds], [...whole.tokenIds]);
    assert.equal(pieces.join(""), whole.text);
    assert.equal(kept.finish?.reason, "LENGTH");
    assert.equal(both.target, runner.address);
    await assert.rejects(
      drained(lostEvents),
      (error: ConstraintdError) => error instanceof Unavailable && error.fragment === lost.text,
    );

    await assert.rejects(new GenerationClient(mortal.address).generate("x", { constraint: WORDS }).wait(), Unavailable);
    both.close();
    await mortal.clear();
  });

  test("kill -9 of the daemon and the runner at once: it goes on when both are back", async () => {
    const options = { constraint: WORDS, sampler: DRAWN, resumable: true, resumeTimeoutMs: 60_000 };
    const whole = client.generate("x", options);
    await whole.wait();
    const kept = client.generate("x", options);
    let pieces = 0;
    for await (const _ of kept) {
      pieces += 1;
      if (pieces === 10) {
        await Promise.all([daemon.kill(), runner.kill()]);
        await daemon.start();
        await runner.start();
      }
    }
    assert.deepEqual([...kept.tokenIds], [...whole.tokenIds]);
    assert.equal(kept.text, whole.text);
    await retrying(() => client.modelInfo());
  });

  test("a break that lasts too long is an error, with the text so far", async () => {
    const mortal = await Served.runner(model, daemon.address);
    const alone = new GenerationClient(mortal.address);
    const generation = alone.generate("x", {
      constraint: WORDS,
      sampler: DRAWN,
      resumable: true,
      resumeTimeoutMs: 300,
    });
    const events = await tokensOf(generation, 10);
    await mortal.kill();
    await assert.rejects(
      drained(events),
      (error: ConstraintdError) =>
        error instanceof Unavailable && error.fragment === generation.text && error.fragment !== "",
    );
    const resumed = client.resume(generation.sessionId ?? assert.fail(), { seen: generation.seen });
    await resumed.wait();
    assert.equal(generation.tokenIds.length + resumed.tokenIds.length, 400);
    alone.close();
    await mortal.clear();
  });

  test("the daemon's view of a generation's session is the runner's", async () => {
    const sessionId = randomBytes(16);
    const generation = client.generate("x", { constraint: choice(["same"]), resumable: true, sessionId });
    await generation.wait();
    using kit = new ConstraintClient(daemon.address);
    assert.deepEqual((await kit.getSession(sessionId)).tokens, [...generation.tokenIds]);
  });
});
