import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import {
  type DecodeRequest,
  DecodeRequestSchema,
  DecodeResponseSchema,
  GetServerInfoResponseSchema,
} from "../src/gen/constraintd/v1/constraint_service_pb.js";
import type { Step, StepErrorSchema } from "../src/gen/constraintd/v1/session_pb.js";

/** One Decode call as its script sees it. */
export interface DecodeCall {
  readonly metadata: Metadata;
  /** The next message; undefined once the client has ended. */
  next(): Promise<DecodeRequest | undefined>;
  /** The next message's steps. */
  steps(): Promise<Step[]>;
  send(message: MessageInitShape<typeof DecodeResponseSchema>): void;
  /** Sends the answer of a Step that was applied: a mask of one word. */
  answer(step: Step): void;
  refuse(step: Step, error: MessageInitShape<typeof StepErrorSchema>): void;
  /** Ends the stream. */
  end(code: status, details?: string): void;
}

/**
 * A gRPC server that answers as a script says, for what a real daemon does only at moments that no test can choose. Its
 * n-th Decode call is the n-th script's.
 */
export class ScriptedDaemon {
  readonly #folder = mkdtempSync(join(tmpdir(), "constraintd-ts-scripted-"));
  readonly #server = new Server();
  readonly address: string;
  /** What went wrong in a script. */
  readonly failures: unknown[] = [];
  calls = 0;

  constructor(
    scripts: readonly ((call: DecodeCall) => Promise<void>)[],
    credentials?: ServerCredentials,
    address?: string,
  ) {
    this.address = address ?? `unix:${join(this.#folder, "socket")}`;
    const path = "/constraintd.v1.ConstraintService";
    const bytes = {
      requestSerialize: asIs,
      requestDeserialize: asIs,
      responseSerialize: asIs,
      responseDeserialize: asIs,
    };
    this.#server.addService(
      {
        Decode: { path: `${path}/Decode`, requestStream: true, responseStream: true, ...bytes },
        GetServerInfo: { path: `${path}/GetServerInfo`, requestStream: false, responseStream: false, ...bytes },
      },
      {
        Decode: (call: ServerDuplexStream<Buffer, Buffer>) => {
          const script = scripts[this.calls++];
          if (!script) call.emit("error", { code: status.UNAVAILABLE, details: "the script has come to its end" });
          else script(scripted(call)).catch((error) => this.failures.push(error));
        },
        GetServerInfo: (call: { metadata: Metadata }, done: (error: null, answer: Buffer) => void) => {
          this.lastMetadata = call.metadata;
          const answer = create(GetServerInfoResponseSchema, { version: "scripted", limits: { maxBatchSteps: 2 } });
          done(null, Buffer.from(toBinary(GetServerInfoResponseSchema, answer)));
        },
      },
    );
    this.#credentials = credentials ?? ServerCredentials.createInsecure();
  }

  readonly #credentials: ServerCredentials;
  /** Headers of the last GetServerInfo. */
  lastMetadata: Metadata | undefined;

  /** Listens; gives the port, where there is one. */
  listen(): Promise<number> {
    return new Promise((resolve, reject) => {
      const done = (error: Error | null, port: number) => (error ? reject(error) : resolve(port));
      this.#server.bindAsync(this.address, this.#credentials, done);
    });
  }

  close(): void {
    this.#server.forceShutdown();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const asIs = (bytes: Buffer) => bytes;

function scripted(call: ServerDuplexStream<Buffer, Buffer>): DecodeCall {
  const messages = call[Symbol.asyncIterator]();
  call.on("error", () => {}); // the client has gone
  const next = async () => {
    const { value, done } = await messages.next();
    return done ? undefined : fromBinary(DecodeRequestSchema, value);
  };
  const send = (message: MessageInitShape<typeof DecodeResponseSchema>) => {
    call.write(Buffer.from(toBinary(DecodeResponseSchema, create(DecodeResponseSchema, message))));
  };
  const answer = ({ sessionId, position, tokens }: Step) => {
    const mask = { encoding: { case: "dense", value: Uint8Array.of(255, 255, 255, 255) } } as const;
    const directive = { position: position + BigInt(tokens.length), outcome: { case: "mask", value: mask } } as const;
    const answers = [{ sessionId, answer: { case: "directive", value: directive } as const }];
    send({ message: { case: "directiveBatch", value: { answers } } });
  };
  return {
    metadata: call.metadata,
    next,
    steps: async () => {
      const message = (await next())?.message;
      return message?.case === "stepBatch" ? message.value.steps : [];
    },
    send,
    answer,
    refuse: ({ sessionId }, error) => {
      const answers = [{ sessionId, answer: { case: "error", value: error } as const }];
      send({ message: { case: "directiveBatch", value: { answers } } });
    },
    end: (code, details = "scripted") => {
      if (code === status.OK) call.end();
      else call.emit("error", { code, details });
    },
  };
}
