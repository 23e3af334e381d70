import { Backoff } from "./backoff.js";
import { Cancelled, ConstraintdError } from "./errors.js";

/** Past this, some 24 days, Node's timers would go off at once; what waits longer waits without end. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** One client's readiness to wait out a break: a backoff, and the time after which it gives up. */
export class Patience {
  readonly #limitMs: number;
  readonly #backoff: Backoff;
  readonly #now: () => number;
  #untilMs: number | undefined;

  /** `limitMs`: how long one break may last. */
  constructor(limitMs: number, { backoff = new Backoff(), now = () => performance.now() } = {}) {
    this.#limitMs = limitMs;
    this.#backoff = backoff;
    this.#now = now;
  }

  /** Milliseconds to wait before the next attempt, at least as long as the server asks; undefined once it is over. */
  nextPauseMs(error: ConstraintdError): number | undefined {
    const now = this.#now();
    this.#untilMs ??= now + this.#limitMs;
    const pause = Math.max(this.#backoff.nextPauseMs(), error.retryDelayMs ?? 0);
    return now + pause < this.#untilMs ? pause : undefined;
  }

  /** After a success: the next break is another one. */
  restore(): void {
    this.#untilMs = undefined;
    this.#backoff.reset();
  }
}

/** Waits so long; rejects with `Cancelled` as soon as the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(new Cancelled("the call was cancelled", { cause: signal?.reason }));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
}

/**
 * Makes a call again as long as its error says that the same call may succeed later, for `patienceMs` at most, with
 * backoff and jitter, unless `giveUp` holds for the error.
 *
 * The call must be the same each time: give `openSession` its `sessionId`, and `updateSession` and `rollbackSession`
 * their `requestId`.
 */
export async function retrying<T>(
  call: () => Promise<T>,
  options: {
    readonly patienceMs?: number;
    readonly signal?: AbortSignal;
    readonly giveUp?: (error: ConstraintdError) => boolean;
  } = {},
): Promise<T> {
  const patience = new Patience(options.patienceMs ?? 30_000);
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ConstraintdError) || !error.retryable || options.giveUp?.(error)) throw error;
      const ms = patience.nextPauseMs(error);
      if (ms === undefined) throw error;
      await pause(ms, options.signal);
    }
  }
}
