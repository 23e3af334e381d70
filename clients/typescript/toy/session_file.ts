import { readFileSync } from "node:fs";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { type Constraint, ConstraintSchema, type SamplerConfig, SamplerConfigSchema } from "../src/index.js";

/** One entry of a session file. */
export interface WantedSession {
  readonly sessionId: Uint8Array;
  readonly constraint: Constraint;
  readonly sampler: SamplerConfig;
  readonly promptTokens: readonly number[];
}

/** Reads a session file. Throws an Error that names the entry that can't be used. */
export function readSessionFile(path: string): WantedSession[] {
  const document: unknown = JSON.parse(readFileSync(path, "utf8"));
  if (!Array.isArray(document)) throw new TypeError(`${path} holds no list of sessions`);
  return document.map((entry, index) => {
    try {
      return wantedSession(entry);
    } catch (error) {
      throw new TypeError(`session ${index} of ${path}: ${error instanceof Error ? error.message : error}`);
    }
  });
}

function wantedSession(entry: Record<string, JsonValue>): WantedSession {
  const { session_id: id, prompt_tokens: promptTokens = [], max_tokens: maxTokens } = entry;
  if (typeof id !== "string" || !/^[0-9a-f]{32}$/.test(id)) throw new TypeError("session_id is not 32 hex digits");
  if (!Array.isArray(promptTokens) || !promptTokens.every((each) => typeof each === "number")) {
    throw new TypeError("prompt_tokens is no list of numbers");
  }
  const sampler = fromJson(SamplerConfigSchema, entry["sampler"] ?? {});
  if (typeof maxTokens === "number") sampler.maxTokens = Math.min(sampler.maxTokens ?? maxTokens, maxTokens);
  const constraint = fromJson(ConstraintSchema, entry["constraint"] ?? {});
  return { sessionId: Buffer.from(id, "hex"), constraint, sampler, promptTokens };
}
