import type { LogitAdjustments } from "../directive.js";
import { allowedIds, checkShapes } from "../mask.js";

/** No token can be picked, and why. */
export class SamplingError extends Error {
  override readonly name = "SamplingError";

  /**
   * "broken_logits": the row holds NaN or +Infinity, or nothing but -Infinity: its forward pass went wrong.
   * "nothing_left": the mask allows tokens, but the model, or what penalties make of its logits, gives each -Infinity.
   */
  constructor(
    readonly kind: "broken_logits" | "nothing_left",
    message: string,
  ) {
    super(message);
  }
}

/** The tokens still in play, at least one: ids ascending, and as many finite logits. */
export interface Candidates {
  readonly ids: Uint32Array;
  readonly logits: Float64Array;
}

/** The allowed tokens of a row, without those that are -Infinity. Throws `SamplingError`, RangeError, TypeError. */
export function maskedCandidates(row: Float32Array, mask: Uint32Array): Candidates {
  checkShapes(row, mask);
  checkRow(row);
  const ids = allowedIds(mask, row.length);
  const logits = new Float64Array(ids.length);
  for (let index = 0; index < ids.length; index++) logits[index] = row[ids[index] as number] as number;
  return possible(ids, logits, "the mask allows");
}

/** The candidates with their logits changed; tokens that are none of them are left out. */
export function adjusted(candidates: Candidates, { ids, scales, offsets }: LogitAdjustments): Candidates {
  const logits = candidates.logits.slice();
  let at = 0;
  for (let index = 0; index < ids.length; index++) {
    const id = ids[index] as number;
    while (at < candidates.ids.length && (candidates.ids[at] as number) < id) at++;
    if (candidates.ids[at] !== id) continue;
    const logit = logits[at] as number;
    const scale = scales[index] as number;
    // What overflows upwards becomes the largest finite number; downwards, -Infinity, and the token drops out.
    logits[at] = Math.min((logit > 0 ? logit / scale : logit * scale) + (offsets[index] as number), Number.MAX_VALUE);
  }
  return possible(candidates.ids, logits, "penalties or the logit bias leave");
}

/** Those whose value is at least the bound, of one value a candidate; at least one is. */
export function keptFrom(candidates: Candidates, values: Float64Array, bound: number): Candidates {
  const indices = new Uint32Array(values.length);
  let count = 0;
  for (let index = 0; index < values.length; index++) {
    if ((values[index] as number) >= bound) indices[count++] = index;
  }
  return at(candidates, indices.subarray(0, count));
}

/** Those at some indices, ascending. */
export function at(candidates: Candidates, indices: Uint32Array): Candidates {
  if (indices.length === candidates.ids.length) return candidates;
  const ids = new Uint32Array(indices.length);
  const logits = new Float64Array(indices.length);
  for (let place = 0; place < indices.length; place++) {
    const index = indices[place] as number;
    ids[place] = candidates.ids[index] as number;
    logits[place] = candidates.logits[index] as number;
  }
  return { ids, logits };
}

/** Those whose logit is above -Infinity. Throws `SamplingError` if there are none. */
function possible(ids: Uint32Array, logits: Float64Array, what: string): Candidates {
  const left = keptFrom({ ids, logits }, logits, -Number.MAX_VALUE);
  if (left.ids.length === 0) throw new SamplingError("nothing_left", `${what} no token whose logit is above -Infinity`);
  return left;
}

/** Forbidden ids count too: a row with a NaN in it is the work of a broken forward pass, all of it. */
function checkRow(row: Float32Array): void {
  let isEmpty = true;
  for (let token = 0; token < row.length; token++) {
    const logit = row[token] as number;
    if (!(logit < Number.POSITIVE_INFINITY)) {
      throw new SamplingError("broken_logits", `the logit of token ${token} is ${logit}: the forward pass went wrong`);
    }
    if (logit > Number.NEGATIVE_INFINITY) isEmpty = false;
  }
  if (isEmpty) throw new SamplingError("broken_logits", `all ${row.length} logits are -Infinity`);
}
