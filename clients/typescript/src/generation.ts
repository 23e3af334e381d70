import type { Answers } from "./calls.js";
import type { Finish } from "./directive.js";
import { Cancelled, ConstraintdError, IncompleteGeneration } from "./errors.js";
import type { GenerateResponse } from "./gen/constraintd/runner/v1/generation_service_pb.js";
import {
  eventOf,
  type Finished,
  type GenerationEvent,
  type PositionLogprobs,
  type Seen,
  type Started,
  type Usage,
} from "./generation_events.js";
import { type Patience, pause } from "./patience.js";
import type { ToolAnswer } from "./tools.js";

/** The streams that make up a generation. */
export interface Streams {
  /** The first one. */
  begin(): Answers<GenerateResponse>;
  /** The one that goes on behind what was seen; `anew`: nothing was, and there is no such session. */
  goOn(seen: Seen, anew: boolean): Answers<GenerateResponse>;
  /** Whether there is anything to begin anew with. */
  readonly canBeginAnew: boolean;
}

/** How a generation ends and goes on. */
export interface GenerationSettings {
  /** The way back after a break; undefined: none. */
  readonly patience: Patience | undefined;
  readonly signal: AbortSignal | undefined;
  /** What the caller had seen of it already. */
  readonly before: Seen;
}

/**
 * One running generation: iterate over it for its text, or over `events()` for everything, once. Leaving the loop early
 * cancels it.
 *
 * Iteration ends only when the runner said Finished. Otherwise it throws a `ConstraintdError`, with the text so far as
 * its `fragment`.
 */
export class Generation implements AsyncIterable<string> {
  readonly #streams: Streams;
  readonly #settings: GenerationSettings;
  readonly #cancelling = new AbortController();
  #stream: Answers<GenerateResponse>;
  #iterated = false;
  #seen: Seen;
  #started: Started | undefined;
  #finished: Finished | undefined;
  readonly #tokenIds: number[] = [];
  readonly #texts: string[] = [];
  readonly #logprobs: PositionLogprobs[] = [];

  /** Begins at once. Made by `GenerationClient`. */
  constructor(streams: Streams, settings: GenerationSettings) {
    this.#streams = streams;
    this.#settings = settings;
    this.#seen = settings.before;
    this.#stream = streams.begin();
  }

  /** Pieces of settled text, none empty, none splitting a character. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    for await (const event of this.events()) {
      if (event.kind === "delta" && event.text !== "") yield event.text;
    }
  }

  /** Started, Deltas, Finished. */
  async *events(): AsyncGenerator<GenerationEvent, void, undefined> {
    if (this.#iterated) throw new Error("a generation can be iterated over once; text and finish stay readable");
    this.#iterated = true;
    try {
      while (!this.#finished) {
        let failure: unknown;
        try {
          for await (const message of this.#stream) {
            const event = this.#accept(eventOf(message));
            if (!event) continue;
            this.#settings.patience?.restore();
            yield event;
            if (event.kind === "finished") return; // the status behind it can't take it back
          }
          failure = new IncompleteGeneration("the runner's stream ended without Finished");
        } catch (error) {
          failure = error;
        }
        await this.#goOnAfter(failure);
      }
    } finally {
      this.cancel(); // changes nothing once it has ended
    }
  }

  /** Runs to the end, for callers who want no pieces, and gives the whole text. */
  async wait(): Promise<string> {
    for await (const _ of this.events());
    return this.text;
  }

  /** Frees its place at the runner; whoever iterates gets `Cancelled`. A resumable one can still be resumed. */
  cancel(): void {
    this.#cancelling.abort();
    this.#stream.cancel();
  }

  /** All settled text so far; final once `finish` is there. */
  get text(): string {
    return this.#texts.join("");
  }

  /** All tokens so far. */
  get tokenIds(): readonly number[] {
    return this.#tokenIds;
  }

  /** The log probabilities so far, one a token; empty if they were not asked for. */
  get logprobs(): readonly PositionLogprobs[] {
    return this.#logprobs;
  }

  /** Why and where it ended; undefined before the end. */
  get finish(): Finish | undefined {
    return this.#finished?.finish;
  }

  /** What it took; undefined before the end. */
  get usage(): Usage | undefined {
    return this.#finished?.usage;
  }

  /** Content and calls, for a constraint that has `toolCalls`; undefined before the end, and for others. */
  get toolAnswer(): ToolAnswer | undefined {
    return this.#finished?.toolAnswer;
  }

  /** The session's id at the daemon; undefined before Started. */
  get sessionId(): Uint8Array | undefined {
    return this.#started?.sessionId;
  }

  /** The seed in force; undefined before Started. */
  get seed(): bigint | undefined {
    return this.#started?.seed;
  }

  /** How far it has come, for `GenerationClient.resume`. */
  get seen(): Seen {
    return this.#seen;
  }

  /** Takes an event in; undefined for one that tells the caller nothing. */
  #accept(event: GenerationEvent | undefined): GenerationEvent | undefined {
    switch (event?.kind) {
      case "started":
        if (this.#started) return undefined; // it was resumed
        this.#started = event;
        return event;
      case "delta":
        for (const token of event.tokenIds) this.#tokenIds.push(token);
        for (const position of event.logprobs) this.#logprobs.push(position);
        this.#texts.push(event.text);
        this.#seen = {
          tokens: this.#seen.tokens + event.tokenIds.length,
          textBytes: this.#seen.textBytes + Buffer.byteLength(event.text),
        };
        return event;
      case "finished":
        this.#finished = event;
        return event;
      default:
        return undefined;
    }
  }

  /** Resumes it after a break. Throws the failure, with the fragment, where that can't be. */
  async #goOnAfter(failure: unknown): Promise<void> {
    const { patience, signal } = this.#settings;
    if (!(failure instanceof ConstraintdError)) throw failure;
    const nothingSeen = this.#seen.tokens === 0 && this.#seen.textBytes === 0;
    const anew = failure.reason === "UNKNOWN_SESSION" && nothingSeen && this.#streams.canBeginAnew;
    const ms = (failure.retryable || anew) && !this.#isCancelled() ? patience?.nextPauseMs(failure) : undefined;
    if (ms === undefined) throw this.#failed(failure);
    try {
      await pause(ms, signal ? AbortSignal.any([signal, this.#cancelling.signal]) : this.#cancelling.signal);
    } catch (error) {
      throw this.#failed(error as ConstraintdError);
    }
    this.#stream = this.#streams.goOn(this.#seen, anew);
  }

  #isCancelled(): boolean {
    return this.#cancelling.signal.aborted || this.#settings.signal?.aborted === true;
  }

  #failed(error: ConstraintdError): ConstraintdError {
    const told = this.#isCancelled() && error instanceof Cancelled && error.code !== undefined;
    const failure = told ? new Cancelled("the generation was cancelled", { cause: error }) : error;
    failure.fragment = this.text;
    return failure;
  }
}
