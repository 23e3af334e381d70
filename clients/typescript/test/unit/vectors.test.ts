import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, test } from "node:test";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { Chain, SamplerConfigSchema, SamplingError } from "../../src/index.js";
import { PACKAGE } from "../processes.js";

const STAGES = [
  ...["greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l"],
  ...["mirostat_v1", "mirostat_v2", "logit_bias", "chains"],
];

interface Vector {
  name: string;
  stages: JsonValue[];
  logits: (number | "-inf")[];
  mask: number[];
  adjustments?: { ids: number[]; scales: number[]; offsets: number[] };
  mu?: number;
  draw: number;
  expected: {
    logits: (number | "-inf")[];
    kept: number[];
    token: number;
    surprisal: number;
    error?: string;
  };
}

const number = (value: number | "-inf") => (value === "-inf" ? Number.NEGATIVE_INFINITY : value);
const near = (actual: number, expected: number) =>
  Math.abs(actual - expected) <= 1e-5 * Math.max(1, Math.abs(expected));

for (const stage of STAGES) {
  describe(`the reference vectors of ${stage}`, () => {
    const path = resolve(PACKAGE, "../../tests/vectors", `${stage}.json`);
    const vectors: Vector[] = JSON.parse(readFileSync(path, "utf8"));
    assert.ok(vectors.length >= 50, `${path} holds too few`);
    for (const [index, vector] of vectors.entries()) test(`${index}: ${vector.name}`, () => check(vector));
  });
}

function check({ stages, logits, mask, adjustments, mu, draw, expected }: Vector): void {
  const chain = Chain.of(fromJson(SamplerConfigSchema, { stages }));
  const row = Float32Array.from(logits, number);
  const directive = {
    mask: Uint32Array.from(mask),
    draw,
    mu,
    adjustments: adjustments && {
      ids: Uint32Array.from(adjustments.ids),
      scales: Float64Array.from(adjustments.scales),
      offsets: Float64Array.from(adjustments.offsets),
    },
  };
  if (expected.error) {
    assert.equal(expected.error, "nothing_left");
    assert.throws(
      () => chain.pick(row, directive),
      (error) => error instanceof SamplingError,
    );
    return;
  }
  const kept = chain.keep(row, directive);
  assert.deepEqual([...kept.ids], expected.kept);
  const wanted = expected.kept.map((id) => number(expected.logits[id] as number));
  // After a temperature all kept logits may be off by one number: probabilities can't tell.
  const shift = stages.some((each) => "temperature" in (each as object)) ? (kept.logits[0] ?? 0) - (wanted[0] ?? 0) : 0;
  for (const [index, logit] of kept.logits.entries()) {
    assert.ok(near(logit - shift, wanted[index] as number), `logit ${logit - shift}, expected ${wanted[index]}`);
  }
  const { token, surprisal } = chain.pick(row, directive);
  assert.equal(token, expected.token);
  assert.ok(near(surprisal, expected.surprisal), `surprisal ${surprisal}, expected ${expected.surprisal}`);
}

interface SessionVector {
  name: string;
  config: { stages?: JsonValue[] };
  steps: { logits: (number | "-inf")[]; mask: number[] }[];
  expected: {
    draw: number;
    adjustments: { ids: number[]; scales: number[]; offsets: number[] };
    kept: number[];
    logits: (number | "-inf")[];
    token: number;
    surprisal: number;
    mu?: number;
  }[];
}

describe("the reference vectors of whole sessions", () => {
  const path = resolve(PACKAGE, "../../tests/vectors/sessions.json");
  const sessions: SessionVector[] = JSON.parse(readFileSync(path, "utf8"));
  for (const { name, config, steps, expected } of sessions) {
    test(name, () => {
      const stages = config.stages ?? [];
      let mu = 2 * (tauOf(stages) ?? Number.NaN); // where it begins
      for (const [index, step] of steps.entries()) {
        const { draw, adjustments, ...outcome } = expected[index] as SessionVector["expected"][number];
        const changes = adjustments.ids.length > 0 ? { adjustments } : {};
        check({ name, stages, ...step, draw, expected: outcome, ...changes, ...(Number.isNaN(mu) ? {} : { mu }) });
        mu = outcome.mu ?? mu;
      }
    });
  }
});

/** Mirostat's target, if the chain has it; 3 bits where it is left out. */
function tauOf(stages: JsonValue[]): number | undefined {
  for (const stage of stages as Record<string, { tau?: number }>[]) {
    const mirostat = stage["mirostat_v1"] ?? stage["mirostat_v2"];
    if (mirostat) return mirostat.tau ?? 3;
  }
  return undefined;
}
