import { fromJson } from "@bufbuild/protobuf";
import { allowedIds, applyMask, Chain, type PickFrom, SamplerConfigSchema } from "../src/index.js";
import { AdapterError } from "./held.js";
import { bytesOf, type Operation, type Request } from "./request.js";

/** The stages that this client's `Chain` runs. */
export const STAGES = [
  ...["greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l"],
  ...["mirostat_v1", "mirostat_v2", "logit_bias"],
];

/** Masks on arrays, and the pick. */
export const SAMPLING_CALLS: Readonly<Record<string, Operation>> = {
  mask(_, request) {
    const logits = rowOf(request);
    const mask = wordsOf(request.mask);
    applyMask(logits, mask);
    return {
      logits: Array.from(logits, (logit) => (logit === Number.NEGATIVE_INFINITY ? "-inf" : logit)),
      allowed: [...allowedIds(mask, logits.length)],
    };
  },

  /** By a session's sampler and Directive, or by the stages and the numbers of the request. */
  pick(held, request) {
    if (request.session === undefined) {
      return Chain.of(fromJson(SamplerConfigSchema, { stages: request.stages })).pick(rowOf(request), madeUp(request));
    }
    const { directive, sampler } = held.session(request);
    if (directive.kind !== "mask") throw new AdapterError(`session ${request.session} has no mask`);
    return Chain.of(sampler).pick(rowOf(request), directive);
  },
};

function rowOf({ logits }: Request): Float32Array {
  return Float32Array.from(logits, (logit) => (logit === "-inf" ? Number.NEGATIVE_INFINITY : logit));
}

function wordsOf(hex: string): Uint32Array {
  const bytes = Buffer.from(bytesOf(hex));
  return Uint32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readUInt32LE(4 * index));
}

function madeUp({ mask, draw, mu, adjustments }: Request): PickFrom {
  return {
    mask: wordsOf(mask),
    draw,
    mu,
    adjustments: adjustments?.ids.length
      ? {
          ids: Uint32Array.from(adjustments.ids),
          scales: Float64Array.from(adjustments.scales),
          offsets: Float64Array.from(adjustments.offsets),
        }
      : undefined,
  };
}
