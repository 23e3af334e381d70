import { status } from "@grpc/grpc-js";
import {
  Cancelled,
  ConstraintdError,
  DeadlineExceeded,
  type Directive,
  type Finish,
  type GenerationEvent,
  IncompleteGeneration,
  MalformedAnswer,
  SamplingError,
  type Session,
  type TokenLogprob,
  Unavailable,
} from "../src/index.js";
import { AdapterError } from "./held.js";

// The client's values as the JSON that cases compare: the same in every language.

export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

export function spelledSession(session: Session): object {
  return {
    session_id: session.hexId,
    epoch: String(session.epoch),
    seed: String(session.seed),
    directive: spelledDirective(session.directive),
  };
}

function spelledDirective(said: Directive): object {
  const { adjustments } = said;
  return {
    position: said.position,
    mask: said.kind === "mask" ? hexOfWords(said.mask) : null,
    finish: said.kind === "finish" ? spelledFinish(said.finish) : null,
    no_token_allowed: said.kind === "no_token_allowed" ? said.message : null,
    draw: said.draw,
    settled_bytes: said.settledBytes,
    mu: said.mu ?? null,
    adjustments: adjustments
      ? { ids: [...adjustments.ids], scales: [...adjustments.scales], offsets: [...adjustments.offsets] }
      : null,
    awaiting_trigger: said.awaitingTrigger,
    allows_eog: said.allowsEog,
    complete: said.complete,
    exhausted: said.exhausted,
  };
}

function hexOfWords(words: Uint32Array): string {
  const bytes = Buffer.alloc(4 * words.length);
  for (const [index, word] of words.entries()) bytes.writeUInt32LE(word, 4 * index);
  return bytes.toString("hex");
}

function spelledFinish(finish: Finish): object {
  return {
    reason: finish.reason,
    stop_string: hexOf(finish.stopString),
    stop_id: finish.stopId ?? null,
    cut_offset: finish.cutOffset,
    constraint_incomplete: finish.constraintIncomplete,
    schema_satisfied: finish.schemaSatisfied ?? null,
    schema_violation: finish.schemaViolation,
  };
}

export function spelledEvent(event: GenerationEvent): object {
  const pair = ({ tokenId, logprob }: TokenLogprob) => [tokenId, logprob];
  switch (event.kind) {
    case "started":
      return {
        event: "started",
        session_id: hexOf(event.sessionId),
        seed: String(event.seed),
        prompt_tokens: event.promptTokens,
      };
    case "delta":
      return {
        event: "delta",
        tokens: event.tokenIds,
        text: event.text,
        logprobs: event.logprobs.map(({ taken, top }) => ({ taken: pair(taken), top: top.map(pair) })),
      };
    case "finished": {
      const answer = event.toolAnswer;
      return {
        event: "finished",
        finish: spelledFinish(event.finish),
        prompt_tokens: event.usage.promptTokens,
        completion_tokens: event.usage.completionTokens,
        tool_answer: answer
          ? {
              content: answer.content,
              calls: answer.calls.map(({ name, arguments: given }) => ({ name, arguments: given })),
              malformed: answer.malformed,
            }
          : null,
      };
    }
  }
}

/** What went wrong; ADAPTER.md says what the kinds mean. */
export function refusal(error: unknown): object {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof AdapterError) return { kind: "adapter", message };
  if (error instanceof SamplingError) return { kind: "sampling", message };
  if (!(error instanceof ConstraintdError)) return { kind: "argument", message };
  const code = error.code ?? ownCode(error);
  return {
    kind: kindOf(error),
    message,
    reason: error.reason,
    code: code === undefined ? null : status[code],
    retryable: error.retryable,
    retry_after_ms: error.retryDelayMs ?? 0,
    expected_position: error.expectedPosition ?? null,
    illegal_index: error.illegalIndex ?? null,
    logged_tokens: error.loggedTokens,
    location: error.location ?? "",
    field: error.field ?? "",
    fragment: error.fragment,
  };
}

function kindOf(error: ConstraintdError): string {
  if (error instanceof MalformedAnswer) return "malformed";
  return error instanceof IncompleteGeneration ? "incomplete" : "refused";
}

/** What errors that this side decided come to. */
function ownCode(error: ConstraintdError): status | undefined {
  if (error instanceof DeadlineExceeded) return status.DEADLINE_EXCEEDED;
  if (error instanceof Cancelled) return status.CANCELLED;
  return error instanceof Unavailable ? status.UNAVAILABLE : undefined;
}
