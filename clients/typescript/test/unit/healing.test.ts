import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { Metadata, Server, ServerCredentials, type ServerWritableStream, status } from "@grpc/grpc-js";
import {
  GenerateRequestSchema,
  GenerateResponseSchema,
  ResumeGenerationRequestSchema,
} from "../../src/gen/constraintd/runner/v1/generation_service_pb.js";
import { FinishReason } from "../../src/gen/constraintd/v1/session_pb.js";
import { ErrorInfoSchema } from "../../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../../src/gen/google/rpc/status_pb.js";
import {
  type ConstraintdError,
  GenerationClient,
  IncompleteGeneration,
  Unavailable,
  unconstrained,
} from "../../src/index.js";
import { because } from "../refusals.js";

type Event = MessageInitShape<typeof GenerateResponseSchema>["event"];
/** What one call gets: its events, then its end; "hangs up" is OK without more. */
type Script = readonly (Event | { readonly code: status; readonly reason?: string })[];
/** What one call asked for: how much was seen, or undefined for Generate. */
type Asked = { readonly seen: readonly [tokens: number, bytes: number] } | undefined;

const started: Event = {
  case: "started",
  value: { sessionId: new Uint8Array(16).fill(7), seed: 1n, promptTokens: 1n },
};
const delta = (tokenIds: number[], text: string): Event => ({ case: "delta", value: { tokenIds, text } });
const finished: Event = { case: "finished", value: { finish: { reason: FinishReason.LENGTH }, usage: {} } };
const ends = (code: status, reason?: string) => (reason === undefined ? { code } : { code, reason });

const asIs = (bytes: Buffer) => bytes;
const bytes = { requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs };
const PATH = "/constraintd.runner.v1.GenerationService";

/** A runner whose n-th call gets the n-th script; `use` also gets what was asked so far. */
async function withRunner(scripts: Script[], use: (client: GenerationClient, asked: Asked[]) => Promise<void>) {
  const folder = mkdtempSync(join(tmpdir(), "constraintd-ts-scripted-"));
  const address = `unix:${join(folder, "socket")}`;
  const asked: Asked[] = [];
  const answer = (call: ServerWritableStream<Buffer, Buffer>) => {
    for (const step of scripts[asked.length - 1] ?? [ends(status.UNIMPLEMENTED)]) {
      if (step && "code" in step) {
        call.emit("error", { code: step.code, details: "scripted", metadata: details(step.code, step.reason) });
        return;
      }
      call.write(
        Buffer.from(toBinary(GenerateResponseSchema, create(GenerateResponseSchema, step ? { event: step } : {}))),
      );
    }
    call.end();
  };
  const server = new Server();
  server.addService(
    {
      Generate: { path: `${PATH}/Generate`, requestStream: false, responseStream: true, ...bytes },
      Resume: { path: `${PATH}/ResumeGeneration`, requestStream: false, responseStream: true, ...bytes },
    },
    {
      Generate: (call: ServerWritableStream<Buffer, Buffer>) => {
        fromBinary(GenerateRequestSchema, call.request);
        asked.push(undefined);
        answer(call);
      },
      Resume: (call: ServerWritableStream<Buffer, Buffer>) => {
        const { seenTokens, seenTextBytes } = fromBinary(ResumeGenerationRequestSchema, call.request);
        asked.push({ seen: [Number(seenTokens), Number(seenTextBytes)] });
        answer(call);
      },
    },
  );
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
  const client = new GenerationClient(address);
  try {
    await use(client, asked);
  } finally {
    client.close();
    server.forceShutdown();
    rmSync(folder, { recursive: true, force: true });
  }
}

function details(code: status, reason: string | undefined): Metadata {
  const metadata = new Metadata();
  if (reason !== undefined) {
    const info = anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain: "constraintd" }));
    const told = toBinary(StatusSchema, create(StatusSchema, { code, details: [info] }));
    metadata.set("grpc-status-details-bin", Buffer.from(told));
  }
  return metadata;
}

const RESUMABLE = { constraint: unconstrained(), resumable: true };

test("each break goes on behind what was seen, in tokens and in bytes of UTF-8", async () => {
  const scripts = [
    [started, delta([1, 2], "é"), ends(status.UNAVAILABLE)],
    [started, delta([3], ""), ends(status.INTERNAL)], // a proxy's reset
    [started, delta([], "!"), ends(status.CANCELLED)],
    [ends(status.ABORTED, "STEP_IN_FLIGHT")],
    [ends(status.RESOURCE_EXHAUSTED, "LIMIT_REACHED")],
    [ends(status.UNAVAILABLE, "STORE_UNAVAILABLE")],
    [started, delta([4], "."), finished],
  ];
  await withRunner(scripts, async (client, asked) => {
    const generation = client.generate("x", RESUMABLE);
    const kinds: string[] = [];
    for await (const { kind } of generation.events()) kinds.push(kind);
    assert.deepEqual(kinds, ["started", "delta", "delta", "delta", "delta", "finished"]);
    assert.deepEqual([[...generation.tokenIds], generation.text], [[1, 2, 3, 4], "é!."]);
    const seen = [
      [2, 2],
      [3, 2],
      [3, 3],
      [3, 3],
      [3, 3],
      [3, 3],
    ];
    assert.deepEqual(asked, [undefined, ...seen.map((each) => ({ seen: each }))]);
  });
});

test("a session that was never opened is begun anew; one that is gone after something was seen is not", async () => {
  const lost = [ends(status.UNAVAILABLE)];
  const unknown = [ends(status.NOT_FOUND, "UNKNOWN_SESSION")];
  await withRunner([lost, unknown, [started, delta([1], "a"), finished]], async (client, asked) => {
    assert.equal(await client.generate("x", RESUMABLE).wait(), "a");
    assert.deepEqual(asked, [undefined, { seen: [0, 0] }, undefined]);
  });
  await withRunner([[started, delta([1], "a"), ...lost], unknown], async (client) => {
    await assert.rejects(client.generate("x", RESUMABLE).wait(), (error: ConstraintdError) => {
      because("UNKNOWN_SESSION")(error);
      assert.equal(error.fragment, "a");
      return true;
    });
  });
});

test("what no waiting mends ends it at once, and so does any break of one that is not resumable", async () => {
  await withRunner([[started, ends(status.INTERNAL, "MODEL_FAILED")]], async (client, asked) => {
    await assert.rejects(client.generate("x", RESUMABLE).wait(), because("MODEL_FAILED"));
    assert.equal(asked.length, 1);
  });
  await withRunner([[started, delta([1], "a"), ends(status.UNAVAILABLE)]], async (client, asked) => {
    const generation = client.generate("x", { constraint: unconstrained() });
    await assert.rejects(
      generation.wait(),
      (error: ConstraintdError) => error instanceof Unavailable && error.fragment === "a",
    );
    assert.equal(asked.length, 1);
  });
});

test("a stream that ends without Finished has failed", async () => {
  await withRunner([[started, delta([1], "a")]], async (client) => {
    await assert.rejects(
      client.generate("x", { constraint: unconstrained() }).wait(),
      (error: ConstraintdError) => error instanceof IncompleteGeneration && error.fragment === "a",
    );
  });
});

test("once Finished has come, the status behind it takes nothing back", async () => {
  await withRunner([[started, delta([1], "a"), finished, ends(status.UNAVAILABLE)]], async (client, asked) => {
    assert.equal(await client.generate("x", RESUMABLE).wait(), "a");
    assert.equal(asked.length, 1);
  });
});

test("an event that is newer than this client is passed over", async () => {
  await withRunner([[started, undefined, delta([1], "a"), finished]], async (client) => {
    assert.equal(await client.generate("x", RESUMABLE).wait(), "a");
  });
});

test("cancelling while it waits for the next attempt ends it there", async () => {
  await withRunner(
    [[started, ends(status.UNAVAILABLE)], ...Array(50).fill([ends(status.UNAVAILABLE)])],
    async (client, asked) => {
      const controller = new AbortController();
      const generation = client.generate("x", { ...RESUMABLE, signal: controller.signal });
      const waiting = generation.wait();
      setTimeout(() => controller.abort("enough"), 80);
      await assert.rejects(waiting, { name: "Cancelled" });
      await new Promise((resolve) => setTimeout(resolve, 30)); // an attempt may have been on its way
      const then = asked.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
      assert.equal(asked.length, then);
    },
  );
});

test("a closed client ends its generations", async () => {
  await withRunner([[started]], async (client) => {
    const generation = client.generate("x", RESUMABLE);
    client.close();
    await assert.rejects(generation.wait(), { name: "Cancelled", message: "the client was closed" });
  });
});
