import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ErrorReason } from "./gen/constraintd/v1/error_pb.js";
import { type StepError, StepErrorSchema } from "./gen/constraintd/v1/session_pb.js";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";

const DOMAIN = "constraintd";
const DETAILS_KEY = "grpc-status-details-bin";

/** Why a daemon or runner refused something: the protocol's `ErrorReason` without its prefix. */
export type ErrorReasonName = Exclude<keyof typeof ErrorReason, "UNSPECIFIED">;

/** Reasons of which a daemon or runner says itself that the same call may succeed later. */
const PASSING: ReadonlySet<string> = new Set<ErrorReasonName>([
  "STEP_IN_FLIGHT",
  "LIMIT_REACHED",
  "STORE_UNAVAILABLE",
  "DAEMON_UNAVAILABLE",
]);

/** What an error is made of, beside its message. */
export interface ErrorFacts {
  /** See `ConstraintdError.reason`. */
  readonly reason?: string;
  /** See `ConstraintdError.code`. */
  readonly code?: status;
  /** See `ConstraintdError.metadata`. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** See `ConstraintdError.retryDelayMs`. */
  readonly retryDelayMs?: number;
  /** The error or AbortSignal reason that led to this one. */
  readonly cause?: unknown;
}

/**
 * Anything that the daemon, the runner or the transport refused. `reason` tells the server's refusals apart; the
 * transport's own failures are the subclasses below.
 */
export class ConstraintdError extends Error {
  /**
   * Name of the `ErrorReason`, such as "STALE_EPOCH"; of a server that is newer than this client perhaps one that it
   * does not know. Empty if the server gave none.
   */
  // The intersection keeps the known names in an editor's completion, and lets a newer one in.
  readonly reason: ErrorReasonName | "" | (string & {});
  /** The call's gRPC status; undefined for a step that was refused inside a stream, and for what this side decided. */
  readonly code: status | undefined;
  /** Particulars, such as {"expected_position": "7"}. */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long the server asks to wait before the same call, in milliseconds. */
  readonly retryDelayMs: number | undefined;
  /** Text that a `Generation` had given before it failed; not a finished text. */
  fragment = "";

  constructor(message: string, facts: ErrorFacts = {}) {
    super(facts.reason ? `${facts.reason}: ${message}` : message, "cause" in facts ? { cause: facts.cause } : {});
    this.name = new.target.name;
    this.reason = facts.reason ?? "";
    this.code = facts.code;
    this.metadata = facts.metadata ?? {};
    this.retryDelayMs = facts.retryDelayMs;
  }

  /** Whether the same call may succeed after a pause, as docs/replicas.md defines it. */
  get retryable(): boolean {
    if (PASSING.has(this.reason)) return true;
    if (this.code === status.INTERNAL) return this.reason === "";
    return this.code === status.UNAVAILABLE || this.code === status.CANCELLED;
  }

  /** INVALID_FIELD, TOO_LARGE: which field, such as "sampler.stages[1].top_p". */
  get field(): string | undefined {
    return this.metadata["field"];
  }

  /** INVALID_GRAMMAR, INVALID_VOCABULARY, INVALID_ENVELOPE: where, as "line:column", JSON pointer or path. */
  get location(): string | undefined {
    return this.metadata["location"];
  }

  /** POSITION_GAP, STALE_POSITION: the session's position. */
  get expectedPosition(): number | undefined {
    return this.#number("expected_position");
  }

  /** TOKEN_NOT_ALLOWED, SESSION_FINISHED, INVALID_SURPRISAL: index of the first illegal entry of the step's tokens. */
  get illegalIndex(): number | undefined {
    return this.#number("illegal_index");
  }

  /** POSITION_CONFLICT: the tokens that were applied at that position. */
  get loggedTokens(): readonly number[] {
    const text = this.metadata["logged_tokens"] ?? "";
    return text === "" ? [] : text.split(",").map(Number);
  }

  #number(key: string): number | undefined {
    const text = this.metadata[key] ?? "";
    return /^\d+$/.test(text) ? Number(text) : undefined;
  }
}

/** The server can't be reached, or the stream broke. Sessions stay as they are: connect and send again. */
export class Unavailable extends ConstraintdError {}

/** No answer in time. It may still come; a step is then still unanswered. */
export class DeadlineExceeded extends ConstraintdError {}

/** The call was cancelled: by an AbortSignal, whose reason is then the `cause`, by `cancel`, or by the server. */
export class Cancelled extends ConstraintdError {}

/** The server's answer can't be used, such as a Directive without mask, finish or no_token_allowed. */
export class MalformedAnswer extends ConstraintdError {}

/** The stream ended without Finished: `fragment` is not a finished text. */
export class IncompleteGeneration extends ConstraintdError {}

/** Whether another address may do better. */
export function lostItsServer(error: ConstraintdError): boolean {
  return error instanceof Unavailable || (error instanceof Cancelled && error.code !== undefined);
}

/** The error of a step that was refused. */
export function fromStepError(error: StepError): ConstraintdError {
  const name = ErrorReason[error.reason] ?? String(error.reason); // a newer server's reason has no name here
  const reason = error.reason === ErrorReason.UNSPECIFIED ? "" : name;
  return new ConstraintdError(error.message, { reason, metadata: stepMetadata(error) });
}

/**
 * The error of a call that failed. The reason comes from the ErrorInfo of our domain; without one, the status code
 * tells the transport's own failures.
 */
export function fromServiceError(error: ServiceError): ConstraintdError {
  const facts: ErrorFacts = { code: error.code, cause: error, ...detailsOf(error.metadata) };
  return new (classOf(error.code, facts.reason ?? ""))(error.details || error.message, facts);
}

function classOf(code: status, reason: string): typeof ConstraintdError {
  if (reason === "DAEMON_UNAVAILABLE") return Unavailable;
  if (reason !== "") return ConstraintdError;
  switch (code) {
    // Our servers give their own INTERNAL a reason. Without one it is how gRPC reports a stream that was reset on the
    // way: a proxy whose server dies in the middle of a stream has no other means to say so.
    case status.INTERNAL:
    case status.UNAVAILABLE:
      return Unavailable;
    case status.DEADLINE_EXCEEDED:
      return DeadlineExceeded;
    case status.CANCELLED:
      return Cancelled;
    default:
      return ConstraintdError;
  }
}

function detailsOf(trailers: Metadata | undefined): Pick<ErrorFacts, "reason" | "metadata" | "retryDelayMs"> {
  let reason = "";
  let metadata: Record<string, string> = {};
  let retryDelayMs: number | undefined;
  for (const value of trailers?.get(DETAILS_KEY) ?? []) {
    for (const detail of statusDetails(value)) {
      const info = anyUnpack(detail, ErrorInfoSchema);
      const retry = anyUnpack(detail, RetryInfoSchema);
      const step = anyUnpack(detail, StepErrorSchema);
      if (info?.domain === DOMAIN) {
        reason = info.reason;
        metadata = { ...metadata, ...info.metadata };
      } else if (retry?.retryDelay) {
        retryDelayMs = durationMs(retry.retryDelay);
      } else if (step) {
        metadata = { ...stepMetadata(step), ...metadata };
      }
    }
  }
  return { reason, metadata, ...(retryDelayMs === undefined ? {} : { retryDelayMs }) };
}

function statusDetails(value: string | Buffer) {
  try {
    return typeof value === "string" ? [] : fromBinary(StatusSchema, value).details;
  } catch {
    return []; // not what a server of ours sends; code and message still stand
  }
}

function stepMetadata(error: StepError): Record<string, string> {
  const metadata: Record<string, string> = {};
  if (error.expectedPosition !== undefined) metadata["expected_position"] = String(error.expectedPosition);
  if (error.loggedTokens.length > 0) metadata["logged_tokens"] = error.loggedTokens.join(",");
  if (error.illegalIndex !== undefined) metadata["illegal_index"] = String(error.illegalIndex);
  return metadata;
}
