import { type Generation, GenerationClient } from "../src/index.js";
import type { Held } from "./held.js";
import {
  bytesOf,
  connectOptions,
  constraintOf,
  type Operation,
  type Request,
  samplerOf,
  sessionIdOf,
} from "./request.js";
import { spelledEvent } from "./spelled.js";

/** Generations at a runner. */
export const GENERATION_CALLS: Readonly<Record<string, Operation>> = {
  connect_runner(held, request) {
    held.runners.set(request.runner ?? "main", new GenerationClient(request.targets, connectOptions(request)));
  },

  generate(held, request) {
    const { timeout_ms, logprobs, resumable = false } = request;
    const generation = held.runner(request).generate(request.prompt, {
      constraint: constraintOf(request),
      resumable,
      ...samplerOf(request),
      ...sessionIdOf(request),
      ...(logprobs === undefined ? {} : { logprobs }),
      ...(timeout_ms === undefined ? {} : { timeoutMs: timeout_ms }),
    });
    keep(held, request, generation);
  },

  resume_generation(held, request) {
    const generation = held.runner(request).resume(bytesOf(request.session_id as string), {
      seen: { tokens: request.seen_tokens, textBytes: request.seen_text_bytes },
      exact: request.exact ?? false,
    });
    keep(held, request, generation);
  },

  /** The next ones: so many, or all that are left. */
  async events(held, request) {
    const { generation, events } = held.running(request);
    const told: object[] = [];
    while (request.count === undefined || told.length < request.count) {
      const { value } = await events.next();
      if (!value) break;
      told.push(spelledEvent(value));
    }
    return { events: told, text: generation.text, tokens: generation.tokenIds };
  },

  cancel(held, request) {
    held.running(request).generation.cancel();
  },

  async close_generation(held, request) {
    return { closed: await held.runner(request).closeGeneration(bytesOf(request.session_id as string)) };
  },

  async model_info(held, request) {
    const { vocabularyId, logitsWidth, contextLength } = await held.runner(request).modelInfo();
    return { vocabulary_id: vocabularyId, logits_width: logitsWidth, context: contextLength };
  },
};

function keep(held: Held, { generation: name }: Request, generation: Generation): void {
  held.generations.set(name, { generation, events: generation.events() });
}
