/**
 * Client of constraintd for Node. `GenerationClient` asks a runner for text under a constraint. `ConstraintClient`,
 * `DecodeStream`, `applyMask` and `Chain` are what a runner of one's own needs to drive sessions at the daemon.
 */

export { Backoff } from "./backoff.js";
export type { ChatMessage, OpenAiToolCall, Tools } from "./chat.js";
export {
  type CallOptions,
  type ClientOptions,
  type CompiledGrammar,
  ConstraintClient,
  type KeywordReport,
  type OpenSessionOptions,
  type UpdateSessionOptions,
} from "./client.js";
export { allOf, type ConstraintLike, compiled, lazy, reasoningEnd, unconstrained } from "./constraints.js";
export type { DecodeStream, DecodeStreamOptions, TakeOptions } from "./decode_stream.js";
export type {
  DeadEndDirective,
  Directive,
  Finish,
  FinishDirective,
  FinishReasonName,
  LogitAdjustments,
  MaskDirective,
} from "./directive.js";
export {
  Cancelled,
  ConstraintdError,
  DeadlineExceeded,
  type ErrorReasonName,
  IncompleteGeneration,
  MalformedAnswer,
  Unavailable,
} from "./errors.js";
export type { GetModelInfoResponse } from "./gen/constraintd/runner/v1/generation_service_pb.js";
export type { GetServerInfoResponse, ServerLimits } from "./gen/constraintd/v1/constraint_service_pb.js";
export { type CompileLimits, type Grammar, GrammarSchema } from "./gen/constraintd/v1/grammar_pb.js";
export {
  type IgnoredNGrams,
  type NGramPenalty,
  type SamplerConfig,
  SamplerConfigSchema,
  type SamplerStage,
  type WindowPenalty,
} from "./gen/constraintd/v1/sampler_pb.js";
export {
  type Constraint,
  ConstraintSchema,
  type GetSessionResponse,
  type ReasoningEnd,
  type Session as SessionInfo,
  type Trigger,
} from "./gen/constraintd/v1/session_pb.js";
export type { Generation } from "./generation.js";
export { GenerationClient, type GenerationTimes, type ResumeOptions } from "./generation_client.js";
export type {
  Delta,
  Finished,
  GenerateOptions,
  GenerationEvent,
  PositionLogprobs,
  Prompt,
  Seen,
  Started,
  TokenLogprob,
  Usage,
} from "./generation_events.js";
export {
  choice,
  compileLimits,
  gbnf,
  type JsonOptions,
  type JsonSchemaOptions,
  jsonObject,
  jsonSchema,
  lark,
  regex,
  structuralTag,
} from "./grammars.js";
export type { JsonDocument, Text } from "./json.js";
export { allowedIds, applyMask, isAllowed } from "./mask.js";
export { retrying } from "./patience.js";
export * from "./samplers.js";
export { SamplingError } from "./sampling/candidates.js";
export { Chain, type Picked, type PickFrom, pickHighest } from "./sampling/chain.js";
export { modelInput, type ResumedSession, Session, type StepReport, type Turn } from "./session.js";
export { allowedTokens, allowList, bannedSpecials, denyRanges, tokenLength, tokenSequence } from "./token_rules.js";
export { type CallTemplate, type ToolAnswer, type ToolCall, type ToolCallOptions, toolCalls } from "./tools.js";
export { AFFINITY_HEADER, type ConnectOptions, type TlsOptions } from "./transport.js";
export * as triggers from "./triggers.js";
export {
  spell,
  type TokenTable,
  type TokenTableSource,
  type VocabularyInfo,
  type VocabularySource,
} from "./vocabulary.js";
