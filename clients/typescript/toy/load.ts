/**
 * A client that never stops asking: it generates the requests of a file one after the other, round and round, resumable,
 * until its standard input ends, and prints each event as a line of JSON. The repository's tests run it while they
 * restart daemons and runners.
 *
 *   node build/toy/load.js --runner unix:/tmp/runner.sock --requests requests.json --first 3
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import {
  type Constraint,
  ConstraintdError,
  ConstraintSchema,
  GenerationClient,
  type GenerationEvent,
  retrying,
  type SamplerConfig,
  SamplerConfigSchema,
} from "../src/index.js";

/** How long one break, of a generation or of the call that closes it, may last. */
const PATIENCE_MS = 30_000;

interface Request {
  readonly prompt: string;
  readonly constraint: Constraint;
  readonly sampler: SamplerConfig;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { runner: { type: "string" }, requests: { type: "string" }, first: { type: "string", default: "0" } },
  });
  if (!values.runner || !values.requests) throw new TypeError("--runner TARGETS and --requests FILE are needed");
  const requests = readRequests(values.requests);
  let number = Number(values.first);
  if (!requests[number]) throw new RangeError(`--first ${values.first}; there are ${requests.length} requests`);

  let ended = false;
  process.stdin.on("end", () => {
    ended = true;
  });
  process.stdin.resume();
  using runner = new GenerationClient(values.runner.split(","));
  for (let request = requests[number]; request && !ended; request = requests[number]) {
    await generate(runner, number, request);
    number = (number + 1) % requests.length;
  }
}

/** Runs one request to its end. What goes wrong at the runner is a line as well. */
async function generate(runner: GenerationClient, number: number, { prompt, ...rest }: Request): Promise<void> {
  const generation = runner.generate(prompt, { ...rest, resumable: true, resumeTimeoutMs: PATIENCE_MS });
  try {
    for await (const event of generation.events()) print(line(number, event));
    const { sessionId } = generation;
    if (sessionId) await retrying(() => runner.closeGeneration(sessionId), { patienceMs: PATIENCE_MS });
  } catch (error) {
    if (!(error instanceof ConstraintdError)) throw error;
    print({ event: "failed", request: number, error: `${error.reason || error.name}: ${error.message}` });
  }
}

function line(number: number, event: GenerationEvent): object {
  switch (event.kind) {
    case "started":
      return { event: "started", request: number, session_id: Buffer.from(event.sessionId).toString("hex") };
    case "delta":
      return { event: "delta", tokens: event.tokenIds, text: event.text };
    case "finished":
      return { event: "finished", reason: event.finish.reason, tokens: event.usage.completionTokens };
  }
}

function print(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

function readRequests(path: string): Request[] {
  const document: unknown = JSON.parse(readFileSync(path, "utf8"));
  if (!Array.isArray(document)) throw new TypeError(`${path} holds no list of requests`);
  return document.map((entry: Record<string, JsonValue>, index) => {
    const { prompt, constraint, sampler } = entry;
    if (typeof prompt !== "string" || constraint === undefined || sampler === undefined) {
      throw new TypeError(`request ${index} of ${path} has no prompt, constraint or sampler`);
    }
    return {
      prompt,
      constraint: fromJson(ConstraintSchema, constraint),
      sampler: fromJson(SamplerConfigSchema, sampler),
    };
  });
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
});
