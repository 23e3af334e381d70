import { at, type Candidates } from "./candidates.js";
import { descending, probabilitiesOf } from "./ranking.js";

/**
 * Keeps as many of the most probable tokens as Zipf's law says, whose exponent is estimated from the first `maxKeep`
 * of them; no more than those are kept. `mu`: the most surprisal that is wanted, in bits.
 */
export function byZipf(candidates: Candidates, mu: number, maxKeep: number): Candidates {
  const count = candidates.ids.length;
  if (count === 1) return candidates;
  const probabilities = probabilitiesOf(candidates.logits);
  const order = descending(probabilities, maxKeep);
  const wanted = tokensWanted(zipfExponent(order, probabilities), mu, count);
  // An estimate that makes no sense cuts nothing.
  const keep = Number.isFinite(wanted) ? Math.min(Math.max(Math.floor(wanted), 1), order.length) : order.length;
  return at(candidates, order.subarray(0, keep).sort());
}

/** Keeps the most probable tokens whose surprisal is at most `mu` bits, at least one, `maxKeep` at most. */
export function bySurprisal(candidates: Candidates, mu: number, maxKeep: number): Candidates {
  const probabilities = probabilitiesOf(candidates.logits);
  const order = descending(probabilities, maxKeep);
  const past = order.findIndex((index) => -Math.log2(probabilities[index] as number) > mu);
  return at(candidates, order.subarray(0, Math.max(1, past < 0 ? order.length : past)).sort());
}

/** By least squares on the logarithms of neighbours' ratios, up to the first 0; NaN where there is no ratio. */
function zipfExponent(order: Uint32Array, probabilities: Float64Array): number {
  let products = 0;
  let squares = 0;
  for (let rank = 1; rank < order.length; rank++) {
    const next = probabilities[order[rank] as number] as number;
    if (next === 0) break;
    const t = Math.log((rank + 1) / rank);
    products += t * Math.log((probabilities[order[rank - 1] as number] as number) / next);
    squares += t * t;
  }
  return products / squares;
}

/** How many of `count` >= 2 tokens have surprisals of `mu` and less; Infinity or NaN where that is undefined. */
function tokensWanted(exponent: number, mu: number, count: number): number {
  if (!(Number.isFinite(exponent) && exponent > 0)) return Number.POSITIVE_INFINITY;
  const epsilon = exponent - 1;
  const inner = epsilon === 0 ? 2 ** mu / Math.log(count) : (epsilon * 2 ** mu) / (1 - count ** -epsilon);
  return inner ** (1 / exponent);
}
