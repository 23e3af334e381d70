/**
 * How long to wait between attempts: exponential backoff with full jitter, so that many clients that lost one server
 * in the same instant don't come back to it in the same instant (Brooker, "Exponential Backoff and Jitter", AWS
 * Architecture Blog, 2015).
 */
export class Backoff {
  readonly #firstMs: number;
  readonly #capMs: number;
  readonly #random: () => number;
  #boundMs: number;

  /** The n-th pause, counted from 0, is `random()`, in [0, 1), times `min(capMs, firstMs * 2 ** n)`. */
  constructor({ firstMs = 20, capMs = 1000, random = Math.random } = {}) {
    this.#firstMs = firstMs;
    this.#capMs = capMs;
    this.#random = random;
    this.#boundMs = firstMs;
  }

  /** Milliseconds to wait before the next attempt. */
  nextPauseMs(): number {
    const bound = Math.min(this.#boundMs, this.#capMs);
    this.#boundMs = bound * 2;
    return this.#random() * bound;
  }

  /** After a success: the next series begins anew. */
  reset(): void {
    this.#boundMs = this.#firstMs;
  }
}
