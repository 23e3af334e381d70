import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type IgnoredNGrams,
  IgnoredNGramsSchema,
  IgnoredSet,
  type NGramPenalty,
  NGramPenaltySchema,
  PenaltyMode,
  PresetStyle,
  type SamplerConfig,
  SamplerConfigSchema,
  type SamplerStage,
  SamplerStageSchema,
  type WindowPenalty,
  WindowPenaltySchema,
} from "./gen/constraintd/v1/sampler_pb.js";
import { documentBytes, type JsonDocument, type Text, utf8List } from "./json.js";
import { named } from "./names.js";

// The daemon checks the ranges, and fills in what is left out.

/** Takes the highest logit, ties by the lowest id. Ends the chain. */
export function greedy(): SamplerStage {
  return stage({ case: "greedy", value: {} });
}

/** Divides the logits by `value`, finite and >= 0; 0 is greedy. */
export function temperature(value: number): SamplerStage {
  return stage({ case: "temperature", value: { temperature: value } });
}

/** Keeps the k highest logits, k >= 1. */
export function topK(k: number): SamplerStage {
  return stage({ case: "topK", value: { k } });
}

/** Keeps the smallest set of most probable tokens whose probability reaches p, in (0, 1]. */
export function topP(p: number): SamplerStage {
  return stage({ case: "topP", value: { p } });
}

/** Keeps tokens whose probability is at least p, in [0, 1], times that of the most probable one. */
export function minP(p: number): SamplerStage {
  return stage({ case: "minP", value: { p } });
}

/** Keeps the smallest set that reaches p, in (0, 1], of those first whose surprisal is closest to the entropy. */
export function typicalP(p: number): SamplerStage {
  return stage({ case: "typicalP", value: { p } });
}

/** Cuts the tail off where the second differences of the sorted probabilities have come to z, in (0, 1]. */
export function tailFree(z: number): SamplerStage {
  return stage({ case: "tailFree", value: { z } });
}

/** How many tokens a split keeps. */
export interface SplitOptions {
  /** At least so many, >= 1. Default: 1. */
  readonly minKeep?: number;
  /** At most so many, >= `minKeep`. Default: 50. */
  readonly maxKeep?: number;
}

/** Keeps the most probable tokens up to the largest gap between neighbouring probabilities. */
export function splitP(options: SplitOptions = {}): SamplerStage {
  return stage({ case: "splitP", value: given(options) });
}

/** Keeps the highest logits up to the largest gap between neighbours. */
export function splitL(options: SplitOptions = {}): SamplerStage {
  return stage({ case: "splitL", value: given(options) });
}

/** How mirostat steers. */
export interface MirostatOptions {
  /** Target surprisal in bits, > 0. Default: 3. */
  readonly tau?: number;
  /** Learning rate, > 0. Default: 0.1. */
  readonly eta?: number;
  /** Tokens that are looked at, and kept at most. Default: 100. */
  readonly maxKeep?: number;
}

/** Holds the surprisal near `tau` by an estimate of Zipf's exponent. */
export function mirostatV1(options: MirostatOptions = {}): SamplerStage {
  return stage({ case: "mirostatV1", value: given(options) });
}

/** Holds the surprisal near `tau` by a cut that moves. */
export function mirostatV2(options: MirostatOptions = {}): SamplerStage {
  return stage({ case: "mirostatV2", value: given(options) });
}

/** Adds a finite bias to the logit of each id; at least one. No bias makes a forbidden token legal. */
export function logitBias(biases: Iterable<readonly [id: number, bias: number]>): SamplerStage {
  const pairs = [...biases];
  return stage({ case: "logitBias", value: { ids: pairs.map(([id]) => id), biases: pairs.map(([, bias]) => bias) } });
}

/** None of the tokens from `first` up to, not including, `end`: a rule of the mask, whatever its place in the chain. */
export function denyRangesStage(ranges: Iterable<readonly [first: number, end: number]>): SamplerStage {
  return stage({ case: "denyRanges", value: { ranges: Array.from(ranges, ([first, end]) => ({ first, end })) } });
}

/** Penalties for tokens among the last ones. What is left out changes nothing, but for the prompt's part. */
export interface WindowPenaltyOptions {
  /** > 0: logits above 0 are divided by it, others multiplied. */
  readonly repetition?: number;
  /** Subtracted for each occurrence. */
  readonly frequency?: number;
  /** Subtracted once. */
  readonly presence?: number;
  /** How many of the last tokens are looked at, >= 1. Default: all. */
  readonly window?: number;
  /** Default: true. */
  readonly repetitionCountsPrompt?: boolean;
  /** For frequency and presence. Default: false. */
  readonly frequencyCountsPrompt?: boolean;
}

/** Penalties for tokens among the last ones. */
export function windowPenalty(options: WindowPenaltyOptions): WindowPenalty {
  return create(WindowPenaltySchema, given(options));
}

/** Penalty for n-grams that come again; `sampler.proto` names each member's meaning and default. */
export interface NGramPenaltyOptions {
  /** Whom to punish: the token that would go on a repeated n-gram, or the last one of every n-gram. */
  readonly mode?: "surgical" | "broad";
  readonly minSize?: number;
  readonly maxSize?: number;
  readonly repeat?: number;
  readonly frequency?: number;
  readonly presence?: number;
  readonly window?: number;
  readonly decay?: number;
  readonly maxCount?: number;
  readonly countsPrompt?: boolean;
  readonly ignored?: IgnoredNGrams;
}

/** Penalty for n-grams of `minSize` to `maxSize` tokens that come again. */
export function ngramPenalty({ mode, ...options }: NGramPenaltyOptions = {}): NGramPenalty {
  const message = create(NGramPenaltySchema, given(options));
  if (mode !== undefined) message.mode = named(PenaltyMode, mode, "mode") as PenaltyMode;
  return message;
}

/** These and nothing else: n-grams by their tokens, texts that the vocabulary tokenises, and sets with a name. */
export function ignoredNGrams(ignored: {
  readonly ngrams?: readonly (readonly number[])[];
  readonly texts?: readonly Text[];
  readonly sets?: readonly ("common_words" | "json_punctuation" | "stop_tokens")[];
}): IgnoredNGrams {
  return create(IgnoredNGramsSchema, {
    ngrams: (ignored.ngrams ?? []).map((ids) => ({ ids: [...ids] })),
    texts: utf8List(ignored.texts ?? [], "texts"),
    sets: (ignored.sets ?? []).map((name) => named(IgnoredSet, name, "sets") as IgnoredSet),
  });
}

/** Penalties before the stages, and where a session stops. */
export interface SamplerOptions {
  /** Seed of the draws, below 2^64. Default: the daemon picks one. */
  readonly seed?: bigint | number;
  /** Default: no limit. 0 ends the session before its first token. */
  readonly maxTokens?: number;
  /** The session finishes where its text first contains one of these. */
  readonly stopStrings?: readonly Text[];
  /** The session finishes at one of these tokens. */
  readonly stopIds?: readonly number[];
  /** No end before so many tokens, and stops are ignored, unless nothing else is legal. Default: 0. */
  readonly minTokens?: number;
  /** The stop belongs to the text. Default: false. */
  readonly includeStop?: boolean;
  /** Special tokens that are never legal. */
  readonly bannedSpecials?: readonly number[];
  readonly windowPenalty?: WindowPenalty;
  readonly ngramPenalty?: NGramPenalty;
}

/** The stages in their order; none: pick by draw. */
export function samplerConfig(stages: readonly SamplerStage[], options: SamplerOptions = {}): SamplerConfig {
  const { seed, stopStrings = [], stopIds = [], bannedSpecials = [], ...others } = options;
  return create(SamplerConfigSchema, {
    ...given(others),
    stages: [...stages],
    stopStrings: utf8List(stopStrings, "stopStrings"),
    stopIds: [...stopIds],
    ...(seed === undefined ? {} : { seed: BigInt(seed) }),
    ...(bannedSpecials.length === 0 ? {} : { bannedSpecials: { ids: [...bannedSpecials] } }),
  });
}

/**
 * A config in the words of another API: the sampling parameters of OpenAI's requests, Hugging Face's GenerationConfig
 * or llama.cpp's server, such as {"temperature": 0.7}. What they leave out has that API's documented default.
 */
export function samplerPreset(
  style: "openai" | "hugging_face" | "llama_cpp",
  parameters: JsonDocument,
  { seed, maxTokens }: { readonly seed?: bigint | number; readonly maxTokens?: number } = {},
): SamplerConfig {
  return create(SamplerConfigSchema, {
    preset: { style: named(PresetStyle, style, "style") as PresetStyle, parameters: documentBytes(parameters) },
    ...(seed === undefined ? {} : { seed: BigInt(seed) }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
  });
}

function stage(kind: NonNullable<MessageInitShape<typeof SamplerStageSchema>["stage"]>): SamplerStage {
  return create(SamplerStageSchema, { stage: kind });
}

/** The options without those that are undefined: an optional field of the protocol is set or not there. */
function given<T extends object>(options: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}
