import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { constraintMessage } from "../../src/constraints.js";
import {
  allOf,
  ConstraintClient,
  type ConstraintLike,
  ConstraintSchema,
  choice,
  denyRanges,
  gbnf,
  greedy,
  jsonSchema,
  minP,
  regex,
  type SamplerConfig,
  SamplerConfigSchema,
  samplerConfig,
  samplerPreset,
  temperature,
  topK,
  topP,
  unconstrained,
  windowPenalty,
} from "../../src/index.js";
import { PACKAGE, Served } from "../processes.js";

interface Line {
  session_id: string;
  tokens: number[];
  finish: string;
  error?: string;
}

const KINDS: readonly (readonly [ConstraintLike, SamplerConfig])[] = [
  [regex("[a-z]{20,40}"), samplerConfig([temperature(0.8), topK(20)], { seed: 1 })],
  [
    unconstrained(),
    samplerConfig([minP(0.02)], { seed: 2n ** 64n - 1n, windowPenalty: windowPenalty({ repetition: 1.3 }) }),
  ],
  [
    jsonSchema({ type: "object", properties: { a: { type: "string" } }, required: ["a"] }),
    samplerConfig([topP(0.9)], { seed: 3 }),
  ],
  [gbnf('root ::= ("ab" | "c")+'), samplerConfig([greedy()], { seed: 4 })],
  [choice(["first", "second"]), samplerPreset("openai", { temperature: 0.9 }, { seed: 5 })],
];
const DEAD = allOf(regex("x[bc]"), denyRanges([[98, 100]]));

describe("the toy runner", () => {
  const folder = mkdtempSync(join(tmpdir(), "constraintd-ts-toy-"));
  const sessions = join(folder, "sessions.json");
  let steady: Served;
  let mortal: Served;

  before(async () => {
    const entries = Array.from({ length: 50 }, (_, index) => {
      const [constraint, sampler] = KINDS[index % KINDS.length] as (typeof KINDS)[number];
      return entry(index, constraint, sampler);
    });
    writeFileSync(sessions, JSON.stringify([...entries, entry(50, DEAD, samplerConfig([], { seed: 6 }))]));
    steady = await Served.daemon();
    mortal = await Served.daemon({ keeping: true });
  });
  after(async () => {
    await Promise.all([steady.clear(), mortal.clear()]);
    rmSync(folder, { recursive: true });
  });

  const entry = (index: number, constraint: ConstraintLike, sampler: SamplerConfig) => ({
    session_id: (index + 1).toString(16).padStart(32, "0"),
    constraint: toJson(ConstraintSchema, constraintMessage(constraint)),
    sampler: toJson(SamplerConfigSchema, sampler),
    prompt_tokens: [index, 70_000 % 300],
    max_tokens: 40,
  });

  async function toy(daemon: string, file: string, atStart = async (): Promise<void> => {}) {
    const args = ["--daemon", daemon, "--vocabulary-tokens", "byte", "--sessions", file, "--one-stream"];
    const program = spawn(process.execPath, [join(PACKAGE, "build/toy/toy_runner.js"), ...args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    const [out, err]: string[][] = [[], []];
    program.stdout.on("data", (said) => out?.push(String(said)));
    program.stderr.on("data", (said) => err?.push(String(said)));
    const code = new Promise<number | null>((resolve) => program.once("close", resolve));
    await atStart();
    return { code: await code, lines: lines(out?.join("") ?? ""), err: err?.join("") ?? "" };
  }
  const lines = (out: string): Line[] =>
    out
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));

  test("makes the same tokens with and without a daemon that is killed, and again when it is started again", async () => {
    const undisturbed = await toy(steady.address, sessions);
    assert.deepEqual([undisturbed.code, undisturbed.err], [0, ""]);
    assert.equal(undisturbed.lines.length, 51);
    assert.equal(undisturbed.lines.at(-1)?.finish, "dead_end");
    const reasons = new Set(undisturbed.lines.map(({ finish }) => finish));
    assert.deepEqual([...reasons].sort(), ["EOG", "GRAMMAR_EXHAUSTED", "LENGTH", "dead_end"]);

    // Killed when the first session has come so far.
    const disturbed = await toy(mortal.address, sessions, async () => {
      for (const position of [3, 12]) {
        using observer = new ConstraintClient(mortal.address);
        const first = Buffer.from("1".padStart(32, "0"), "hex");
        const reached = async () => (await observer.getSession(first)).tokens.length >= position;
        while (!(await reached().catch(() => false))) await new Promise((resolve) => setTimeout(resolve, 5));
        await mortal.kill();
        await mortal.start();
      }
    });
    assert.deepEqual(disturbed, undisturbed);
    assert.deepEqual(await toy(mortal.address, sessions), undisturbed);
  });

  test("names what is wrong with its file", async () => {
    const wrong = join(folder, "wrong.json");
    writeFileSync(wrong, JSON.stringify([{ session_id: "12", constraint: { unconstrained: {} } }]));
    assert.match((await toy(steady.address, wrong)).err, /session 0 of .*: session_id is not 32 hex digits/);
    writeFileSync(wrong, JSON.stringify([{ session_id: "0".repeat(32), constraint: { magic: {} } }]));
    const refused = await toy(steady.address, wrong);
    assert.deepEqual([refused.code, refused.lines], [2, []]);
  });
});
