// Weights, probabilities and order among logits. Ties go to the lowest id, which is the lowest index. Plain loops: with
// callbacks for each of 131,072 elements a pick takes ten times as long.

/** Softmax before its division: exp(logit - highest), so that the highest has exactly 1. */
export function weightsOf(logits: Float64Array): Float64Array {
  const highest = highestOf(logits);
  const weights = new Float64Array(logits.length);
  for (let index = 0; index < logits.length; index++) weights[index] = Math.exp((logits[index] as number) - highest);
  return weights;
}

/** Softmax. The most improbable may come out as 0. */
export function probabilitiesOf(logits: Float64Array): Float64Array {
  const weights = weightsOf(logits);
  const total = sumOf(weights);
  for (let index = 0; index < weights.length; index++) weights[index] = (weights[index] as number) / total;
  return weights;
}

/** The highest of at least one. */
export function highestOf(values: Float64Array): number {
  let highest = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < values.length; index++) highest = Math.max(highest, values[index] as number);
  return highest;
}

/** The sum, in order. */
export function sumOf(values: Float64Array): number {
  let sum = 0;
  for (let index = 0; index < values.length; index++) sum += values[index] as number;
  return sum;
}

/** The running sums, in order. */
export function sumsOf(values: Float64Array): Float64Array {
  const sums = new Float64Array(values.length);
  let sum = 0;
  for (let index = 0; index < values.length; index++) {
    sum += values[index] as number;
    sums[index] = sum;
  }
  return sums;
}

/** The index of the first of some ascending numbers that is at least the bound; their number if there is none. */
export function firstReaching(ascending: Float64Array, bound: number): number {
  let index = 0;
  while (index < ascending.length && (ascending[index] as number) < bound) index++;
  return index;
}

/** The index of the first of some ascending numbers that is above the bound; their number if there is none. */
export function firstAbove(ascending: Float64Array, bound: number): number {
  let index = 0;
  while (index < ascending.length && (ascending[index] as number) <= bound) index++;
  return index;
}

/** The `count` highest values (all, if there are no more), the highest first. */
export function ranked(values: Float64Array, count = values.length): Float64Array {
  if (count >= values.length) return values.slice().sort().reverse();
  const indices = highest(values, count);
  const head = new Float64Array(count);
  for (let index = 0; index < count; index++) head[index] = values[indices[index] as number] as number;
  return head.sort().reverse();
}

/** Indices of the `count` >= 1 highest (all, if there are no more), the highest first. */
export function descending(values: Float64Array, count: number): Uint32Array {
  // Only what is wanted is put in order: sorting 131,072 indices by a comparison takes a tenth of a second.
  const indices = count < values.length ? highest(values, count) : Uint32Array.from(values.keys());
  return indices.sort((a, b) => (values[b] as number) - (values[a] as number) || a - b);
}

/** Indices, ascending, of the `count` >= 1 highest; `count` is at most the number of values. */
export function highest(values: Float64Array, count: number): Uint32Array {
  return reaching(values, nthHighest(values, count), count);
}

/** The same, given the `count`-th highest of the values. */
export function reaching(values: Float64Array, threshold: number, count: number): Uint32Array {
  let ties = count;
  for (let index = 0; index < values.length; index++) {
    if ((values[index] as number) > threshold) ties--;
  }
  const indices = new Uint32Array(count);
  let found = 0;
  for (let index = 0; index < values.length && found < count; index++) {
    const value = values[index] as number;
    if (value > threshold || (value === threshold && ties-- > 0)) indices[found++] = index;
  }
  return indices;
}

/** The n-th highest value, n >= 1: Hoare's quickselect, in time proportional to their number. */
function nthHighest(values: Float64Array, n: number): number {
  const left = values.slice();
  const place = left.length - n;
  let low = 0;
  let high = left.length - 1;
  while (low < high) {
    const pivot = left[(low + high) >>> 1] as number;
    let up = low;
    let down = high;
    while (up <= down) {
      while ((left[up] as number) < pivot) up++;
      while ((left[down] as number) > pivot) down--;
      if (up > down) break;
      const lower = left[down] as number;
      left[down--] = left[up] as number;
      left[up++] = lower;
    }
    if (place <= down) high = down;
    else if (place >= up) low = up;
    else break;
  }
  return left[place] as number;
}
