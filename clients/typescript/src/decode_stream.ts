import { create, toBinary } from "@bufbuild/protobuf";
import { Backoff } from "./backoff.js";
import { readMessage } from "./calls.js";
import { DecodeConnection } from "./decode_connection.js";
import { type Directive, directiveOf } from "./directive.js";
import {
  Cancelled,
  ConstraintdError,
  DeadlineExceeded,
  fromStepError,
  lostItsServer,
  MalformedAnswer,
  Unavailable,
} from "./errors.js";
import {
  DecodeRequestSchema,
  DecodeResponseSchema,
  type StepAnswer,
} from "./gen/constraintd/v1/constraint_service_pb.js";
import type { Step } from "./gen/constraintd/v1/session_pb.js";
import { LONGEST_TIMER_MS, Patience } from "./patience.js";
import { hexOf, type Session, type StepReport, stepMessage } from "./session.js";
import type { Targets } from "./transport.js";
import type { VocabularyInfo } from "./vocabulary.js";

/** How a stream deals with breaks. */
export interface DecodeStreamOptions {
  /** How long one break may last, in milliseconds, before the stream fails. Default: 30,000. */
  readonly patienceMs?: number;
}

/** How long a take may wait. */
export interface TakeOptions {
  /** Milliseconds. Default: 30,000. */
  readonly timeoutMs?: number;
  /** Stops waiting; the Step stays unanswered. */
  readonly signal?: AbortSignal;
}

/** One unanswered Step. */
interface Waiting {
  readonly step: Step;
  /** Where it was sent; undefined: it is to be sent. */
  sentOn: DecodeConnection | undefined;
  /** Its readiness to ask again while the daemon is at work on what a broken stream had brought it. */
  readonly patience: Patience;
  resent: boolean;
  timer: NodeJS.Timeout | undefined;
  outcome: Directive | ConstraintdError | undefined;
  /** Wakes whoever waits for the outcome. */
  wake: (() => void) | undefined;
}

/**
 * Steps many sessions of one vocabulary, one unanswered Step a session. Answers wait here until they are taken.
 *
 * When the stream breaks, or the daemon says that it is about to stop, a new one is opened with backoff, at the next
 * address where there are several, and the unanswered Steps are sent again: one that was applied already gives the same
 * answer. A break that lasts longer than `patienceMs`, or an error that no waiting mends (such as UNKNOWN_VOCABULARY),
 * makes the stream fail: `send` and `take` then throw that error, unanswered Steps stay, and `reconnect` tries again.
 */
export class DecodeStream {
  readonly #targets: Targets;
  readonly #hello: Uint8Array;
  readonly #batchSteps: number;
  readonly #patienceMs: number;
  readonly #patience: Patience;
  readonly #waiting = new Map<string, Waiting>();
  #connection: DecodeConnection | undefined;
  #pause: NodeJS.Timeout | undefined;
  #failure: ConstraintdError | undefined;
  #closed = false;
  #opened = 0;
  readonly #untrack: () => void;

  /** Made by `ConstraintClient.decodeStream`. */
  constructor(
    targets: Targets,
    { vocabularyId, logitsWidth }: Pick<VocabularyInfo, "vocabularyId" | "logitsWidth">,
    batchSteps: number,
    { patienceMs = 30_000 }: DecodeStreamOptions = {},
  ) {
    const hello = create(DecodeRequestSchema, { message: { case: "hello", value: { vocabularyId, logitsWidth } } });
    this.#targets = targets;
    this.#hello = toBinary(DecodeRequestSchema, hello);
    this.#batchSteps = batchSteps;
    this.#patienceMs = patienceMs;
    this.#patience = new Patience(patienceMs);
    this.#untrack = targets.track(() => this.close());
  }

  /** Streams opened so far: 1 more than there were breaks. */
  get opened(): number {
    return this.#opened;
  }

  /**
   * Sends these Steps, in one StepBatch unless they are more than the server takes in one. Never waits. Throws, before
   * anything is sent, if a session has an unanswered Step or comes twice, if a Step is malformed, or if the stream has
   * failed or is closed.
   */
  send(reports: Iterable<StepReport>): void {
    this.#refuseIfOver();
    const steps = new Map<string, Step>();
    for (const report of reports) {
      const id = report.session.hexId;
      if (this.#waiting.has(id) || steps.has(id)) {
        throw new Error(`session ${id} has an unanswered step; take or forget its answer first`);
      }
      const step = stepMessage(report);
      writable([step]); // throws for a number that doesn't fit its field
      steps.set(id, step);
    }
    for (const [id, step] of steps) {
      const patience = new Patience(this.#patienceMs, { backoff: new Backoff({ firstMs: 5, capMs: 200 }) });
      const nothing = { sentOn: undefined, timer: undefined, outcome: undefined, wake: undefined };
      this.#waiting.set(id, { step, patience, resent: false, ...nothing });
    }
    this.#flush();
  }

  /**
   * This session's answer; the handle then stands at its position. Rejects with the error of its refused Step (the
   * session then has no unanswered Step); with `DeadlineExceeded` or `Cancelled` if none came in time, or with what the
   * stream failed with (the Step then stays unanswered: take again, or forget).
   */
  async take(session: Session, { timeoutMs = 30_000, signal }: TakeOptions = {}): Promise<Directive> {
    const waiting = this.#waiting.get(session.hexId);
    if (!waiting) throw new Error(`nothing unanswered was sent for session ${session.hexId}`);
    if (waiting.wake) throw new Error(`the answer of session ${session.hexId} is being taken already`);
    if (!waiting.outcome) await this.#outcome(waiting, session, timeoutMs, signal);
    const { outcome } = waiting;
    if (!outcome) throw this.#failure ?? new Cancelled(`the step of session ${session.hexId} was forgotten`);
    this.forget(session);
    if (outcome instanceof ConstraintdError) throw outcome;
    session.directive = outcome;
    return outcome;
  }

  /** Drops this session's unanswered Step and its answer, if any: for a session that nobody continues. */
  forget(session: Session): void {
    const waiting = this.#waiting.get(session.hexId);
    clearTimeout(waiting?.timer);
    this.#waiting.delete(session.hexId);
    waiting?.wake?.();
  }

  /** Why the stream has failed; undefined while it stands, or mends itself. */
  get failure(): ConstraintdError | undefined {
    return this.#failure;
  }

  /** After a failure: opens a new stream and sends every unanswered Step again. Throws if the stream is closed. */
  reconnect(): void {
    if (this.#closed) throw new Error("the stream is closed");
    this.#failure = undefined;
    this.#patience.restore();
    this.#flush();
  }

  /** Ends the stream. Whoever is taking gets `Cancelled`. May be called twice. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#untrack();
    this.#fail(new Cancelled("the stream was closed"));
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #refuseIfOver(): void {
    if (this.#closed) throw new Error("the stream is closed");
    if (this.#failure) throw this.#failure;
  }

  /** Waits until the Step has an outcome, the stream has failed, or it was forgotten. */
  #outcome(waiting: Waiting, session: Session, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#failure) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const settle = (error?: ConstraintdError) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", aborted);
        waiting.wake = undefined;
        if (error) reject(error);
        else resolve();
      };
      const aborted = () => settle(new Cancelled("waiting was cancelled", { cause: signal?.reason }));
      const late = () => settle(new DeadlineExceeded(`no answer for session ${session.hexId} within ${timeoutMs} ms`));
      const timer = setTimeout(late, Math.min(timeoutMs, LONGEST_TIMER_MS));
      waiting.wake = () => settle();
      if (signal?.aborted) aborted();
      else signal?.addEventListener("abort", aborted, { once: true });
    });
  }

  /** Writes every Step that is to be sent, and opens the stream for it if need be. */
  #flush(): void {
    if (this.#pause || this.#failure || this.#connection?.draining) return;
    const unsent = [...this.#waiting.values()].filter((each) => !each.sentOn && !each.outcome && !each.timer);
    if (unsent.length === 0) return;
    try {
      this.#connection ??= this.#connect();
    } catch (error) {
      // Such as what the caller's own token function throws: the takers are told, since this may run in a timer.
      this.#fail(new ConstraintdError(`the stream can't be opened: ${String(error)}`, { cause: error }));
      return;
    }
    for (let begin = 0; begin < unsent.length; begin += this.#batchSteps) {
      const batch = unsent.slice(begin, begin + this.#batchSteps);
      for (const each of batch) each.sentOn = this.#connection;
      this.#connection.write(writable(batch.map(({ step }) => step)));
    }
  }

  #connect(): DecodeConnection {
    this.#opened += 1;
    const connection: DecodeConnection = new DecodeConnection(
      this.#targets,
      this.#hello,
      (message) => this.#receive(connection, message),
      (error) => this.#broken(connection, error),
    );
    return connection;
  }

  #receive(connection: DecodeConnection, bytes: Uint8Array): void {
    if (connection !== this.#connection) return;
    const { message } = readMessage(DecodeResponseSchema, bytes);
    if (message.case === "draining") {
      connection.draining = true;
    } else if (message.case === "directiveBatch") {
      this.#patience.restore();
      for (const answer of message.value.answers) this.#deliver(connection, answer);
    } // else it is newer than this client, and no answer
  }

  #deliver(connection: DecodeConnection, answer: StepAnswer): void {
    const waiting = this.#waiting.get(hexOf(answer.sessionId));
    // Not sent here: forgotten, and perhaps another Step since.
    if (!waiting || waiting.sentOn !== connection || waiting.outcome) return;
    const outcome = outcomeOf(waiting.step, answer);
    if (!outcome) return;
    if (outcome instanceof ConstraintdError && outcome.reason === "STEP_IN_FLIGHT" && waiting.resent) {
      const ms = waiting.patience.nextPauseMs(outcome);
      if (ms !== undefined) {
        waiting.sentOn = undefined;
        waiting.timer = setTimeout(() => {
          waiting.timer = undefined;
          this.#flush();
        }, ms);
        return;
      }
    }
    waiting.outcome = outcome;
    waiting.wake?.();
  }

  /** A stream has ended: what stays unanswered there goes to the next one. */
  #broken(connection: DecodeConnection, ended: ConstraintdError | undefined): void {
    if (connection !== this.#connection) return;
    this.#connection = undefined;
    const error = ended ?? new Unavailable("the server ended the stream");
    for (const each of this.#waiting.values()) {
      if (each.sentOn === connection && !each.outcome) {
        each.sentOn = undefined;
        each.resent = true;
      }
    }
    if (lostItsServer(error)) this.#targets.leave(connection.target);
    if (ended && !ended.retryable) {
      this.#fail(error);
      return;
    }
    if (![...this.#waiting.values()].some((each) => !each.outcome)) {
      this.#patience.restore(); // the next Step opens the next stream
      return;
    }
    const ms = this.#patience.nextPauseMs(error);
    if (ms === undefined) {
      this.#fail(error);
      return;
    }
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#flush();
    }, ms);
  }

  #fail(error: ConstraintdError): void {
    this.#failure = error;
    clearTimeout(this.#pause);
    this.#pause = undefined;
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.end();
    for (const each of this.#waiting.values()) {
      clearTimeout(each.timer);
      each.timer = undefined;
      if (!each.outcome && each.sentOn) [each.sentOn, each.resent] = [undefined, true];
      each.wake?.();
    }
  }
}

/**
 * The outcome as this Step's answer; undefined where it answers an earlier one, which was forgotten. One that stands
 * past this Step has another position's mask, and can't be used.
 */
function outcomeOf(step: Step, { answer }: StepAnswer): Directive | ConstraintdError | undefined {
  if (answer.case === "error") return fromStepError(answer.value);
  try {
    if (answer.case !== "directive") throw new MalformedAnswer("the answer has neither a directive nor an error");
    const directive = directiveOf(answer.value);
    const expected = Number(step.position) + step.tokens.length;
    if (directive.position === expected) return directive;
    if (directive.position < expected) return undefined;
    throw new MalformedAnswer(`the answer stands at position ${directive.position}, expected ${expected}`);
  } catch (error) {
    if (error instanceof ConstraintdError) return error;
    throw error;
  }
}

function writable(steps: Step[]): Uint8Array {
  const request = create(DecodeRequestSchema, { message: { case: "stepBatch", value: { steps } } });
  return toBinary(DecodeRequestSchema, request);
}
