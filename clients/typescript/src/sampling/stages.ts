import { adjusted, at, type Candidates, keptFrom } from "./candidates.js";
import * as mirostat from "./mirostat.js";
import {
  descending,
  firstAbove,
  firstReaching,
  highest,
  highestOf,
  probabilitiesOf,
  ranked,
  reaching,
  sumOf,
  sumsOf,
  weightsOf,
} from "./ranking.js";

/** How many of the most probable tokens are put in order at first. The result is the same for any number. */
const HEAD = 512;

/** One stage: what is kept of the candidates, and with which logits. `mu` is mirostat's, where the chain has it. */
export type Stage = (candidates: Candidates, mu: number | undefined) => Candidates;

/**
 * Divides the logits; the highest is subtracted first, which changes no probability: a tiny temperature then gives
 * -Infinity for the others, who drop out, where dividing alone would give Infinity for the highest, and NaN after it.
 */
export function temperature(value: number): Stage {
  check(Number.isFinite(value) && value >= 0, `temperature is ${value}; expected a finite number >= 0`);
  return ({ ids, logits }) => {
    const top = highestOf(logits);
    const scaled = new Float64Array(logits.length);
    for (let index = 0; index < logits.length; index++) scaled[index] = ((logits[index] as number) - top) / value;
    return keptFrom({ ids, logits: scaled }, scaled, -Number.MAX_VALUE);
  };
}

/** Keeps the k highest logits (Fan et al. 2018, arXiv 1805.04833). */
export function topK(k: number): Stage {
  check(Number.isInteger(k) && k >= 1, `top_k is ${k}; expected at least 1`);
  return (candidates) => (k >= candidates.ids.length ? candidates : at(candidates, highest(candidates.logits, k)));
}

/** Keeps the smallest set that reaches p, the token that crosses it included (Holtzman et al. 2020). */
export function topP(p: number): Stage {
  check(p > 0 && p <= 1, `top_p is ${p}; expected a number in (0, 1]`);
  return (candidates) => {
    if (p === 1) return candidates; // also those too improbable to change the sum
    const weights = weightsOf(candidates.logits);
    const bound = p * sumOf(weights);
    // Nearly always the first few reach p.
    for (const count of [HEAD, weights.length]) {
      const order = ranked(weights, count);
      const crossing = firstReaching(sumsOf(order), bound);
      if (crossing < order.length) return at(candidates, reaching(weights, order[crossing] as number, crossing + 1));
    }
    return candidates; // the sum misses p by rounding alone
  };
}

/** Keeps tokens at least p times as probable as the most probable one (Nguyen et al. 2024, arXiv 2407.01082). */
export function minP(p: number): Stage {
  check(p >= 0 && p <= 1, `min_p is ${p}; expected a number in [0, 1]`);
  return (candidates) => {
    return keptFrom(candidates, weightsOf(candidates.logits), p);
  };
}

/** Keeps the smallest set that reaches p of those whose surprisal is closest to the entropy (arXiv 2202.00666). */
export function typicalP(p: number): Stage {
  check(p > 0 && p <= 1, `typical_p is ${p}; expected a number in (0, 1]`);
  return (candidates) => {
    if (p === 1) return candidates;
    const probabilities = probabilitiesOf(candidates.logits);
    let entropy = 0; // in nats
    for (const each of probabilities) if (each > 0) entropy -= each * Math.log(each);
    const nearness = probabilities.map((each) => -Math.abs(-Math.log(each) - entropy));
    for (const count of [HEAD, nearness.length]) {
      const order = descending(nearness, count);
      const crossing = firstReaching(sumsOf(Float64Array.from(order, (index) => probabilities[index] as number)), p);
      if (crossing < order.length) return at(candidates, order.subarray(0, crossing + 1).sort());
    }
    return candidates;
  };
}

/** Cuts off the tail, where the curve of the sorted probabilities has become flat (Phénix and Egan 2019). */
export function tailFree(z: number): Stage {
  check(z > 0 && z <= 1, `tail_free is ${z}; expected a number in (0, 1]`);
  return (candidates) => {
    const count = candidates.ids.length;
    if (count < 3 || z === 1) return candidates;
    const probabilities = probabilitiesOf(candidates.logits);
    const order = ranked(probabilities);
    const steps = order.subarray(1).map((value, index) => value - (order[index] as number));
    const bends = steps.subarray(1).map((value, index) => Math.abs(value - (steps[index] as number)));
    const total = sumOf(bends);
    // A straight line bends nowhere, and so everywhere alike.
    const shares = bends.map((bend) => (total > 0 ? bend / total : 1 / bends.length));
    const cut = firstAbove(sumsOf(shares), z);
    return cut === shares.length ? candidates : at(candidates, highest(probabilities, Math.max(1, cut)));
  };
}

/** Keeps the most probable tokens up to the largest gap between neighbouring probabilities. */
export function splitP(minKeep = 1, maxKeep = 50): Stage {
  return split("split_p", probabilitiesOf, minKeep, maxKeep);
}

/** Keeps the highest logits up to the largest gap between neighbours. */
export function splitL(minKeep = 1, maxKeep = 50): Stage {
  return split("split_l", (logits) => logits, minKeep, maxKeep);
}

/** Mirostat (arXiv 2007.14966, algorithm 1). */
export function mirostatV1(maxKeep = 100): Stage {
  check(Number.isInteger(maxKeep) && maxKeep >= 2, `mirostat_v1 keeps at most ${maxKeep}; expected at least 2`);
  return (candidates, mu) => mirostat.byZipf(candidates, finiteMu(mu), maxKeep);
}

/** Mirostat's algorithm 2. */
export function mirostatV2(maxKeep = 100): Stage {
  check(Number.isInteger(maxKeep) && maxKeep >= 1, `mirostat_v2 keeps at most ${maxKeep}; expected at least 1`);
  return (candidates, mu) => mirostat.bySurprisal(candidates, finiteMu(mu), maxKeep);
}

/** Adds finite biases to single logits; ids that are no candidates are left out. */
export function logitBias(ids: readonly number[], biases: readonly number[]): Stage {
  check(
    ids.length > 0 && ids.length === biases.length && new Set(ids).size === ids.length && biases.every(Number.isFinite),
    `logit_bias has ${ids.length} ids and ${biases.length} biases; expected one finite bias an id, no id twice`,
  );
  const pairs = ids.map((id, index) => [id, biases[index] as number] as const).sort(([a], [b]) => a - b);
  const adjustments = {
    ids: Uint32Array.from(pairs, ([id]) => id),
    scales: new Float64Array(pairs.length).fill(1),
    offsets: Float64Array.from(pairs, ([, bias]) => bias),
  };
  return (candidates) => adjusted(candidates, adjustments);
}

function split(name: string, of: (logits: Float64Array) => Float64Array, minKeep: number, maxKeep: number): Stage {
  check(Number.isInteger(minKeep) && minKeep >= 1, `${name} keeps at least ${minKeep}; expected at least 1`);
  check(Number.isInteger(maxKeep) && maxKeep >= minKeep, `${name} keeps at most ${maxKeep}; expected >= ${minKeep}`);
  return (candidates) => {
    const values = of(candidates.logits);
    if (values.length <= minKeep) return candidates;
    const order = descending(values, maxKeep + 1);
    let widest = Number.NEGATIVE_INFINITY;
    let keep = minKeep;
    for (let place = minKeep; place < order.length; place++) {
      const gap = (values[order[place - 1] as number] as number) - (values[order[place] as number] as number);
      if (gap > widest) [widest, keep] = [gap, place]; // of equal gaps the first one
    }
    return at(candidates, order.subarray(0, keep).sort());
  };
}

function finiteMu(mu: number | undefined): number {
  check(mu !== undefined && Number.isFinite(mu), `mu is ${mu}; the chain has a mirostat stage, which needs a number`);
  return mu as number;
}

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
