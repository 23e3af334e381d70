/**
 * Lets the cases of clients/conformance drive this client: a request a line on stdin, an answer a line on stdout.
 * ADAPTER.md there says which there are.
 */
import { createInterface } from "node:readline";
import { DAEMON_CALLS } from "./daemon_calls.js";
import { GENERATION_CALLS } from "./generations.js";
import { Held } from "./held.js";
import type { Operation, Request } from "./request.js";
import { SAMPLING_CALLS, STAGES } from "./sampling_calls.js";
import { refusal } from "./spelled.js";
import { STREAM_CALLS } from "./streams.js";

const OPERATIONS: Readonly<Record<string, Operation>> = {
  hello: () => ({ language: "typescript", stages: STAGES, features: ["retryable"] }),
  reset: (held) => held.reset(),
  ...DAEMON_CALLS,
  ...STREAM_CALLS,
  ...SAMPLING_CALLS,
  ...GENERATION_CALLS,
};

const held = new Held();
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(line)));
}
held.reset();

async function answer(line: string): Promise<object> {
  try {
    const request: Request = JSON.parse(line);
    const operation = OPERATIONS[request.op];
    if (!operation) return { error: { kind: "adapter", message: `no operation ${request.op}` } };
    return { ok: (await operation(held, request)) ?? {} };
  } catch (error) {
    return { error: refusal(error) };
  }
}
