import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { ErrorReason } from "../../src/gen/constraintd/v1/error_pb.js";
import { ConstraintClient, MalformedAnswer, SamplerConfigSchema, Session } from "../../src/index.js";
import { AFFINITY_HEADER } from "../../src/transport.js";
import { because } from "../refusals.js";
import { type DecodeCall, ScriptedDaemon } from "../scripted_daemon.js";

const VOCABULARY = { vocabularyId: "v", logitsWidth: 32 };
const facts = {
  ...{ position: 0, draw: 0, settledBytes: 0, adjustments: undefined, mu: undefined },
  ...{ awaitingTrigger: false, allowsEog: false, complete: false, exhausted: false },
};

function session(): Session {
  const directive = { kind: "mask", mask: Uint32Array.of(1), ...facts } as const;
  return new Session(randomBytes(16), 1n, directive, create(SamplerConfigSchema, { seed: 1n }));
}
const report = (one: Session, ...tokens: number[]) => ({ session: one, tokens, surprisals: tokens.map(() => 0) });

async function withScript(
  scripts: ((call: DecodeCall) => Promise<void>)[],
  use: (client: ConstraintClient, daemon: ScriptedDaemon) => Promise<void>,
): Promise<void> {
  const daemon = new ScriptedDaemon(scripts);
  await daemon.listen();
  const client = new ConstraintClient(daemon.address, { affinity: "mine" });
  try {
    await use(client, daemon);
    assert.deepEqual(daemon.failures, []);
  } finally {
    client.close();
    daemon.close();
  }
}

test("the stream begins with Hello and the affinity, and batches are no larger than the server takes", async () => {
  const sizes: number[] = [];
  const script = async (call: DecodeCall) => {
    assert.deepEqual(call.metadata.get(AFFINITY_HEADER), ["mine"]);
    const hello = (await call.next())?.message;
    assert.ok(hello?.case === "hello" && hello.value.vocabularyId === "v" && hello.value.logitsWidth === 32);
    for (let left = 5; left > 0; ) {
      const steps = await call.steps();
      sizes.push(steps.length);
      left -= steps.length;
      for (const step of steps) call.answer(step);
    }
  };
  await withScript([script], async (client) => {
    using stream = await client.decodeStream(VOCABULARY);
    const sessions = [1, 2, 3, 4, 5].map(session);
    stream.send(sessions.map((each) => report(each, 3)));
    await Promise.all(sessions.map((each) => stream.take(each)));
    assert.deepEqual(sizes, [2, 2, 1]);
  });
});

test("a draining daemon gets no more steps; what it leaves unanswered goes to the next stream, once", async () => {
  const [first, second, third] = [session(), session(), session()];
  const carried: string[] = [];
  const sentWhileDraining: unknown[] = [];
  const drains = async (call: DecodeCall) => {
    await call.next();
    const [read, unread] = await call.steps();
    assert.ok(read && unread);
    call.send({ message: { case: "draining", value: {} } });
    call.answer(read); // the answers to what it has read still come
    const ended = () => {};
    call.next().then((message) => sentWhileDraining.push(message), ended);
    await new Promise((resolve) => setTimeout(resolve, 60));
    call.end(status.UNAVAILABLE, "draining");
  };
  const next = async (call: DecodeCall) => {
    await call.next();
    for (const step of await call.steps()) {
      carried.push(Buffer.from(step.sessionId).toString("hex"));
      call.answer(step);
    }
  };
  await withScript([drains, next], async (client, daemon) => {
    using stream = await client.decodeStream(VOCABULARY);
    stream.send([report(first, 1), report(second, 2)]);
    await stream.take(first);
    stream.send([report(third, 3)]); // the drain is known by now
    assert.deepEqual(
      (await Promise.all([stream.take(second), stream.take(third)])).map(({ kind }) => kind),
      ["mask", "mask"],
    );
    assert.deepEqual(carried.sort(), [second.hexId, third.hexId].sort());
    assert.deepEqual(sentWhileDraining.filter(Boolean), []);
    assert.equal(daemon.calls, 2);
  });
});

test("a stream that the server ends OK, or a proxy resets, is opened again", async () => {
  const breaks = (code: status) => async (call: DecodeCall) => {
    await call.next();
    await call.steps();
    call.end(code);
  };
  const answers = async (call: DecodeCall) => {
    await call.next();
    for (const step of await call.steps()) call.answer(step);
  };
  await withScript(
    [breaks(status.OK), breaks(status.INTERNAL), breaks(status.CANCELLED), answers],
    async (client, daemon) => {
      using stream = await client.decodeStream(VOCABULARY);
      const one = session();
      stream.send([report(one, 1)]);
      assert.equal((await stream.take(one)).position, 1);
      assert.equal(daemon.calls, 4);
    },
  );
});

test("a broken stream without unanswered steps is opened by the next step, not before", async () => {
  const once = async (call: DecodeCall) => {
    await call.next();
    for (const step of await call.steps()) call.answer(step);
    await new Promise((resolve) => setTimeout(resolve, 20));
    call.end(status.UNAVAILABLE);
  };
  await withScript([once, once], async (client, daemon) => {
    using stream = await client.decodeStream(VOCABULARY);
    const one = session();
    stream.send([report(one, 1)]);
    await stream.take(one);
    await new Promise((resolve) => setTimeout(resolve, 150));
    assert.equal(daemon.calls, 1);
    stream.send([report(one, 1)]);
    assert.equal((await stream.take(one)).position, 2);
    assert.equal(daemon.calls, 2);
  });
});

test("a step that the broken stream had brought is asked for until the daemon is done with it", async () => {
  let asked = 0;
  const dies = async (call: DecodeCall) => {
    await call.next();
    await call.steps();
    call.end(status.UNAVAILABLE);
  };
  const busy = async (call: DecodeCall) => {
    await call.next();
    for (const attempt of [1, 2, 3]) {
      const [step] = await call.steps();
      assert.ok(step);
      asked += 1;
      if (attempt < 3) call.refuse(step, { reason: ErrorReason.STEP_IN_FLIGHT, message: "still at work" });
      else call.answer(step);
    }
  };
  await withScript([dies, busy], async (client) => {
    using stream = await client.decodeStream(VOCABULARY);
    const one = session();
    stream.send([report(one, 1)]);
    assert.equal((await stream.take(one)).position, 1);
    assert.equal(asked, 3);
  });
});

test("a step in flight that was sent once only is an error of its sender", async () => {
  const script = async (call: DecodeCall) => {
    await call.next();
    for (const step of await call.steps()) call.refuse(step, { reason: ErrorReason.STEP_IN_FLIGHT, message: "twice" });
  };
  await withScript([script], async (client) => {
    using stream = await client.decodeStream(VOCABULARY);
    const one = session();
    stream.send([report(one, 1)]);
    await assert.rejects(stream.take(one), because("STEP_IN_FLIGHT"));
  });
});

test("an answer without a mask, or at another position, is an error of that session and never 'all allowed'", async () => {
  const script = async (call: DecodeCall) => {
    await call.next();
    const [first, second] = await call.steps();
    const [third] = await call.steps();
    assert.ok(first && second && third);
    const bare = { sessionId: first.sessionId, answer: { case: "directive", value: { position: 1n } } as const };
    call.send({ message: { case: "directiveBatch", value: { answers: [bare, { sessionId: randomBytes(16) }] } } });
    call.answer({ ...second, position: 7n });
    call.send({ message: { case: undefined } });
    call.answer(third);
  };
  await withScript([script], async (client) => {
    using stream = await client.decodeStream(VOCABULARY);
    const [first, second, third] = [session(), session(), session()];
    stream.send([first, second, third].map((each) => report(each, 1)));
    await assert.rejects(stream.take(first), (error) => error instanceof MalformedAnswer);
    await assert.rejects(stream.take(second), /stands at position 8, expected 1/);
    assert.equal((await stream.take(third)).position, 1);
  });
});

test("the answer to a step that was forgotten is not the next step's", async () => {
  let release = () => {};
  const forgotten = new Promise<void>((resolve) => {
    release = resolve;
  });
  const script = async (call: DecodeCall) => {
    await call.next();
    const [early] = await call.steps();
    await forgotten;
    const [late] = await call.steps();
    assert.ok(early && late);
    call.answer(early);
    call.answer(late);
  };
  await withScript([script], async (client) => {
    using stream = await client.decodeStream(VOCABULARY);
    const one = session();
    stream.send([report(one, 1)]);
    const taking = stream.take(one);
    stream.forget(one);
    await assert.rejects(taking, /was forgotten/);
    stream.send([report(one, 1, 2)]);
    release();
    assert.equal((await stream.take(one)).position, 2);
  });
});

test("a token function that throws is told to whoever takes", async () => {
  const daemon = new ScriptedDaemon([]);
  await daemon.listen();
  let calls = 0;
  const token = () => {
    calls += 1;
    if (calls > 2) throw new Error("the vault is shut");
    return "secret";
  };
  const client = new ConstraintClient(daemon.address, { token });
  using stream = await client.decodeStream(VOCABULARY);
  assert.deepEqual(daemon.lastMetadata?.get("authorization"), ["Bearer secret"]);
  const one = session();
  stream.send([report(one, 1)]);
  await assert.rejects(stream.take(one), /the vault is shut/);
  client.close();
  daemon.close();
});
