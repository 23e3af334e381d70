import { create } from "@bufbuild/protobuf";
import { type Directive, directiveOf, exactNumber } from "./directive.js";
import { MalformedAnswer } from "./errors.js";
import type { SamplerConfig } from "./gen/constraintd/v1/sampler_pb.js";
import {
  type Constraint,
  type Directive as DirectiveMessage,
  type ReasoningEnd,
  type ResumeSessionResponse,
  type Step,
  StepSchema,
} from "./gen/constraintd/v1/session_pb.js";

/**
 * An open session as this client last saw it. `ConstraintClient.step` and `DecodeStream.take` move it on; whoever
 * generates reads it.
 */
export class Session {
  /** 16 bytes, chosen by whoever opened it. */
  readonly id: Uint8Array;
  /** The id as 32 hex digits. */
  readonly hexId: string;
  /** Names this owner's view of the session; goes into every Step. */
  epoch: bigint;
  /** The seed in force. */
  seed: bigint;
  /** The latest answer: what to do at `position`. */
  directive: Directive;
  /** The sampler config in force: defaults filled in, a preset spelled out. */
  sampler: SamplerConfig;

  constructor(id: Uint8Array, epoch: bigint, directive: Directive, sampler: SamplerConfig) {
    this.id = id;
    this.hexId = hexOf(id);
    this.epoch = epoch;
    this.seed = sampler.seed ?? 0n;
    this.directive = directive;
    this.sampler = sampler;
  }

  /** Tokens accepted so far, the prompt excluded; the next Step's position. */
  get position(): number {
    return this.directive.position;
  }
}

/** One turn's beginning: `promptTokens` stand between the token before `position` and the one at it. */
export interface Turn {
  readonly position: number;
  readonly promptTokens: readonly number[];
}

/** A session that was taken over, with all that a runner needs to go on. */
export interface ResumedSession {
  readonly session: Session;
  readonly vocabularyId: string;
  /** The turns' prompts, by ascending position; the first at position 0. */
  readonly turns: readonly Turn[];
  /** All accepted tokens. */
  readonly tokens: readonly number[];
  /** Lengths of the forward passes as they were reported, in order; empty if they weren't. */
  readonly passes: readonly number[];
  /** The constraint in force, as it was given. */
  readonly constraint: Constraint | undefined;
  /** Where the model's reasoning ends; undefined: it does not reason. */
  readonly reasoningEnd: ReasoningEnd | undefined;
}

/** Prompts and tokens in order: what the model has to be fed before the next token. */
export function modelInput({ turns, tokens }: Pick<ResumedSession, "turns" | "tokens">): number[] {
  const parts: (readonly number[])[] = [];
  let taken = 0;
  for (const turn of turns) {
    parts.push(tokens.slice(taken, turn.position), turn.promptTokens);
    taken = turn.position;
  }
  return [...parts, tokens.slice(taken)].flat();
}

/** What the answers to calls that open or move a session have in common. */
export interface Moved {
  readonly epoch: bigint;
  readonly directive?: DirectiveMessage | undefined;
  readonly sampler?: SamplerConfig | undefined;
}

/** A new handle at what the answer says. Throws `MalformedAnswer` if it can't be used. */
export function openedBy(id: Uint8Array, answer: Moved): Session {
  return new Session(id, answer.epoch, directiveOf(answer.directive), samplerOf(answer));
}

/** The handle, at what the answer says. Throws `MalformedAnswer`, and moves nothing, if it can't be used. */
export function move(session: Session, answer: Moved): Directive {
  const [directive, sampler] = [directiveOf(answer.directive), samplerOf(answer)];
  Object.assign(session, { epoch: answer.epoch, directive, sampler, seed: sampler.seed ?? 0n });
  return directive;
}

/** What a takeover came to. Throws `MalformedAnswer` if it can't be used. */
export function resumedOf(id: Uint8Array, answer: ResumeSessionResponse): ResumedSession {
  return {
    session: openedBy(id, answer),
    vocabularyId: answer.vocabularyId,
    turns: answer.turns.map(({ position, promptTokens }) => ({
      position: exactNumber(position, "a turn's position"),
      promptTokens,
    })),
    tokens: answer.tokens,
    passes: answer.passes,
    constraint: answer.constraint,
    reasoningEnd: answer.reasoningEnd,
  };
}

/** What one session reports. */
export interface StepReport {
  readonly session: Session;
  /** The tokens that it accepted from its position on, at least one. */
  readonly tokens: readonly number[];
  /** For each token -log2 of its probability after all stages, in bits: finite, >= 0. */
  readonly surprisals: readonly number[];
  /** Lengths in tokens of the forward passes since the last Step, the prompt's first. Default: not reported. */
  readonly passes?: readonly number[];
}

/** The Step that reports this at the session's position. Throws RangeError if the numbers of entries differ. */
export function stepMessage({ session, tokens, surprisals, passes = [] }: StepReport): Step {
  if (tokens.length !== surprisals.length) {
    throw new RangeError(`${tokens.length} tokens but ${surprisals.length} surprisals for session ${session.hexId}`);
  }
  return create(StepSchema, {
    sessionId: session.id,
    epoch: session.epoch,
    position: BigInt(session.position),
    tokens: [...tokens],
    surprisals: [...surprisals],
    passes: [...passes],
  });
}

/** Bytes as hex digits. */
export function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");
}

function samplerOf({ sampler }: Moved): SamplerConfig {
  if (!sampler) throw new MalformedAnswer("the answer has no sampler config");
  return sampler;
}
