/**
 * Sets the logits of forbidden tokens to -Infinity, in place; what is -Infinity stays so, and nothing else changes.
 * `mask` has `ceil(logits.length / 32)` words: bit i of word w is token 32 * w + i. Throws RangeError for another
 * number, TypeError for other arrays.
 */
export function applyMask(logits: Float32Array, mask: Uint32Array): void {
  checkShapes(logits, mask);
  for (let index = 0; index < mask.length; index++) {
    const word = mask[index] as number;
    const begin = 32 * index;
    const end = Math.min(begin + 32, logits.length);
    if (word === 0) {
      logits.fill(Number.NEGATIVE_INFINITY, begin, end);
    } else if (word !== 0xffffffff) {
      for (let token = begin; token < end; token++) {
        if (((word >>> (token - begin)) & 1) === 0) logits[token] = Number.NEGATIVE_INFINITY;
      }
    }
  }
}

/** Ids of the legal tokens below `width`, ascending. */
export function allowedIds(mask: Uint32Array, width = 32 * mask.length): Uint32Array {
  let count = 0;
  const ids = new Uint32Array(Math.min(width, 32 * mask.length));
  for (let index = 0; index < mask.length; index++) {
    let word = mask[index] as number;
    while (word !== 0) {
      const bit = 31 - Math.clz32(word & -word); // the lowest bit that is set
      const token = 32 * index + bit;
      if (token < width) ids[count++] = token;
      word = (word & (word - 1)) >>> 0;
    }
  }
  return ids.subarray(0, count);
}

/** Whether a token is legal; one past the mask is not. */
export function isAllowed(mask: Uint32Array, token: number): boolean {
  return (((mask[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
}

/** Throws unless logits and mask belong together. */
export function checkShapes(logits: Float32Array, mask: Uint32Array): void {
  if (!(logits instanceof Float32Array) || !(mask instanceof Uint32Array)) {
    throw new TypeError("logits are a Float32Array, and a mask is a Uint32Array");
  }
  const expected = Math.ceil(logits.length / 32);
  if (mask.length !== expected) {
    throw new RangeError(`${logits.length} logits need a mask of ${expected} words, not of ${mask.length}`);
  }
}
