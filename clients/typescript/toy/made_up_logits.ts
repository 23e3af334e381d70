const MASK = (1n << 64n) - 1n;
const FNV_OFFSET = 0xcbf29ce484222325n;
const FNV_PRIME = 0x100000001b3n;

/** A model that is a hash: its logits depend on every token before, and on nothing else. */
export class MadeUpModel {
  #hash = FNV_OFFSET; // FNV-1a, 64 bits, over the tokens' little-endian uint32 bytes

  constructor(readonly width: number) {}

  /** Takes tokens in. */
  feed(tokens: Iterable<number>): void {
    for (const token of tokens) {
      for (let shift = 0; shift < 32; shift += 8) {
        this.#hash = ((this.#hash ^ BigInt((token >>> shift) & 0xff)) * FNV_PRIME) & MASK;
      }
    }
  }

  /** The next row: [width] float32, in [-6, 6). */
  logits(): Float32Array {
    return Float32Array.from({ length: this.width }, (_, token) => {
      const random = splitMix64((this.#hash + BigInt(token)) & MASK);
      return (Number(random >> 40n) / 2 ** 24) * 12 - 6;
    });
  }
}

/** Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators". */
export function splitMix64(state: bigint): bigint {
  let z = (state + 0x9e3779b97f4a7c15n) & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}
