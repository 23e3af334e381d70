import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import {
  type ChatMessage,
  type ClientOptions,
  type Constraint,
  ConstraintSchema,
  type SamplerConfig,
  SamplerConfigSchema,
} from "../src/index.js";
import type { Held } from "./held.js";

/** The fields of all operations; each looks at its own. */
export interface Request {
  readonly op: string;
  readonly client?: string;
  readonly runner?: string;
  readonly stream: string;
  readonly session: string;
  readonly of: string;
  readonly generation: string;
  readonly targets: string[];
  readonly timeout_ms?: number;
  readonly token?: string;
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string };
  readonly vocabulary_id: string;
  readonly tokens: (number | string | null)[];
  readonly special: Record<string, string>;
  readonly eog_ids: number[];
  readonly logits_width: number;
  readonly spell: number[];
  readonly session_id?: string;
  readonly grammar: JsonValue;
  readonly constraint?: JsonValue;
  readonly sampler?: JsonValue;
  readonly prompt_tokens?: number[];
  readonly surprisals: number[];
  readonly passes?: number[];
  readonly steps: { readonly session: string; readonly tokens: number[]; readonly surprisals: number[] }[];
  readonly epoch?: string;
  readonly position?: number;
  readonly to_position: number;
  readonly seed?: string;
  readonly request_id?: string;
  readonly new_turn?: number[];
  readonly envelope: string;
  readonly logits: (number | "-inf")[];
  readonly mask: string;
  readonly stages: JsonValue[];
  readonly draw: number;
  readonly adjustments?: { readonly ids: number[]; readonly scales: number[]; readonly offsets: number[] };
  readonly mu?: number;
  readonly prompt: string | number[] | ChatMessage[];
  readonly logprobs?: number;
  readonly resumable?: boolean;
  readonly count?: number;
  readonly seen_tokens: number;
  readonly seen_text_bytes: number;
  readonly exact?: boolean;
}

/** Answers a request: gives what is to be written, or throws the client's error. */
export type Operation = (held: Held, request: Request) => unknown;

export const bytesOf = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, "hex"));

/** How a client shows who it is. */
export function connectOptions({ timeout_ms, token, tls }: Request): ClientOptions {
  const files = {
    ...(tls?.ca === undefined ? {} : { caFile: tls.ca }),
    ...(tls?.cert === undefined ? {} : { certificateFile: tls.cert }),
    ...(tls?.key === undefined ? {} : { keyFile: tls.key }),
  };
  return {
    ...(timeout_ms === undefined ? {} : { timeoutMs: timeout_ms }),
    ...(token === undefined ? {} : { token }),
    ...(tls === undefined ? {} : { tls: files }),
  };
}

export function constraintOf({ constraint }: Request): Constraint {
  return fromJson(ConstraintSchema, constraint as JsonValue);
}

/** The sampler config as a property, where the request has one. */
export function samplerOf({ sampler }: Request): { sampler?: SamplerConfig } {
  return sampler === undefined ? {} : { sampler: fromJson(SamplerConfigSchema, sampler) };
}

/** Likewise the session's id. */
export function sessionIdOf({ session_id }: Request): { sessionId?: Uint8Array } {
  return session_id === undefined ? {} : { sessionId: bytesOf(session_id) };
}

/** Likewise seed and request id. */
export function changesOf({ seed, request_id }: Request): { seed?: bigint; requestId?: Uint8Array } {
  return {
    ...(seed === undefined ? {} : { seed: BigInt(seed) }),
    ...(request_id === undefined ? {} : { requestId: bytesOf(request_id) }),
  };
}
