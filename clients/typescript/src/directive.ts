import { MalformedAnswer } from "./errors.js";
import {
  type Directive as DirectiveMessage,
  type Finish as FinishMessage,
  FinishReason,
  type LogitAdjustments as LogitAdjustmentsMessage,
} from "./gen/constraintd/v1/session_pb.js";
import { float64Array, uint32Array } from "./little_endian.js";
import { nameOf } from "./names.js";

/** Why a session finished: the protocol's `FinishReason` without its prefix. */
export type FinishReasonName = Exclude<keyof typeof FinishReason, "UNSPECIFIED">;

/** A session's end. */
export interface Finish {
  /** Why; a reason that is newer than this client is given as its number. */
  readonly reason: FinishReasonName | (string & {});
  /** STOP_STRING: the string that was found; else empty. */
  readonly stopString: Uint8Array;
  /** EOG, STOP_ID: the token that ended it. */
  readonly stopId: number | undefined;
  /** Length of the final text in bytes, from position 0. */
  readonly cutOffset: number;
  /** Whether the text does not satisfy the constraint. */
  readonly constraintIncomplete: boolean;
  /**
   * Whether the final text satisfies the session's JSON Schemas as they were given, found by an independent validator;
   * undefined for a session without any, and for an incomplete text.
   */
  readonly schemaSatisfied: boolean | undefined;
  /** If not: where and why, for people. */
  readonly schemaViolation: string;
}

/** Changes to single logits, after the mask and before the first stage; arrays of one length >= 1. */
export interface LogitAdjustments {
  /** Ascending, none twice. */
  readonly ids: Uint32Array;
  /** Finite and > 0; a scale s acts on logit l as l > 0 ? l / s : l * s. */
  readonly scales: Float64Array;
  /** Finite; added after that. */
  readonly offsets: Float64Array;
}

/** What every Directive says. */
export interface DirectiveFacts {
  /** Tokens accepted so far, the prompt excluded. */
  readonly position: number;
  /** The number in [0, 1) that picks the next token. */
  readonly draw: number;
  /** Text bytes, from position 0, that no later step takes back. */
  readonly settledBytes: number;
  /** What the penalties change; undefined: nothing. */
  readonly adjustments: LogitAdjustments | undefined;
  /** Mirostat's mu in bits, for the config's mirostat stage; undefined where it has none. */
  readonly mu: number | undefined;
  /** Whether some grammar still sleeps. */
  readonly awaitingTrigger: boolean;
  /** Whether the text may end here. */
  readonly allowsEog: boolean;
  /** Whether the text so far satisfies every grammar. */
  readonly complete: boolean;
  /** Whether it does, and nothing but the end can follow. */
  readonly exhausted: boolean;
}

/** The tokens that may come next. */
export interface MaskDirective extends DirectiveFacts {
  readonly kind: "mask";
  /** Bit i of word w is token 32 * w + i. */
  readonly mask: Uint32Array;
}

/** The session has finished: drop the forward pass. */
export interface FinishDirective extends DirectiveFacts {
  readonly kind: "finish";
  readonly finish: Finish;
}

/** Nothing may come next. The session stays open, for an update or a rollback. */
export interface DeadEndDirective extends DirectiveFacts {
  readonly kind: "no_token_allowed";
  /** What met, for people. */
  readonly message: string;
}

/** What to do at a position. */
export type Directive = MaskDirective | FinishDirective | DeadEndDirective;

/**
 * Translates a Directive. Throws `MalformedAnswer` if it has no outcome, or a mask in an encoding that this client does
 * not know: such an answer must never read as "all allowed". Also for numbers that can't be used.
 */
export function directiveOf(message: DirectiveMessage | undefined): Directive {
  if (!message) throw new MalformedAnswer("the answer has no Directive");
  const at = `at position ${message.position}`;
  if (message.mu !== undefined && !Number.isFinite(message.mu)) {
    throw new MalformedAnswer(`mu is ${message.mu} ${at}; expected a finite number`);
  }
  if (!(message.draw >= 0 && message.draw < 1)) {
    throw new MalformedAnswer(`the draw is ${message.draw} ${at}; expected a number in [0, 1)`);
  }
  const facts: DirectiveFacts = {
    position: exactNumber(message.position, "the position"),
    draw: message.draw,
    settledBytes: exactNumber(message.settledBytes, "settled_bytes"),
    adjustments: message.adjustments && adjustmentsOf(message.adjustments, at),
    mu: message.mu,
    awaitingTrigger: message.awaitingTrigger,
    allowsEog: message.allowsEog,
    complete: message.complete,
    exhausted: message.exhausted,
  };
  switch (message.outcome.case) {
    case "mask": {
      const { encoding } = message.outcome.value;
      const words = encoding.case === "dense" ? encoding.value : new Uint8Array();
      if (words.length === 0 || words.length % 4 !== 0) {
        throw new MalformedAnswer(`the mask ${at} has ${words.length} dense bytes; expected whole 32-bit words`);
      }
      return { ...facts, kind: "mask", mask: uint32Array(words) };
    }
    case "finish":
      return { ...facts, kind: "finish", finish: finishOf(message.outcome.value) };
    case "noTokenAllowed":
      return { ...facts, kind: "no_token_allowed", message: message.outcome.value.message };
    default:
      throw new MalformedAnswer(`the Directive ${at} has no mask, finish or no_token_allowed`);
  }
}

/** Translates a Finish. */
export function finishOf(message: FinishMessage): Finish {
  return {
    reason: nameOf(FinishReason, message.reason),
    stopString: message.stopString,
    stopId: message.stopId,
    cutOffset: exactNumber(message.cutOffset, "cut_offset"),
    constraintIncomplete: message.constraintIncomplete,
    schemaSatisfied: message.schemaSatisfied,
    schemaViolation: message.schemaViolation,
  };
}

/** A 64-bit number as one of JavaScript's. Throws `MalformedAnswer` past 2^53, where those are not exact. */
export function exactNumber(value: bigint, what: string): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new MalformedAnswer(`${what} is ${value}; expected less than 2^53`);
  return number;
}

function adjustmentsOf(given: LogitAdjustmentsMessage, at: string): LogitAdjustments | undefined {
  const count = given.ids.length / 4;
  if (!Number.isInteger(count) || given.scales.length !== 8 * count || given.offsets.length !== 8 * count) {
    throw new MalformedAnswer(
      `the adjustments ${at} have ${given.ids.length} bytes of ids, ${given.scales.length} of scales and ` +
        `${given.offsets.length} of offsets; expected 4, 8 and 8 a token`,
    );
  }
  if (count === 0) return undefined;
  const scales = float64Array(given.scales);
  const offsets = float64Array(given.offsets);
  if (!scales.every((scale) => Number.isFinite(scale) && scale > 0) || !offsets.every(Number.isFinite)) {
    throw new MalformedAnswer(
      `the adjustments ${at} hold a scale that is not finite and > 0, or an offset that is not finite`,
    );
  }
  return { ids: uint32Array(given.ids), scales, offsets };
}
