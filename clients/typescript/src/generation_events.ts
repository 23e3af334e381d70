import { randomBytes } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { type ChatMessage, chatPrompt, type Tools } from "./chat.js";
import { type ConstraintLike, constraintMessage } from "./constraints.js";
import { exactNumber, type Finish, finishOf } from "./directive.js";
import { MalformedAnswer } from "./errors.js";
import {
  type Finished as FinishedMessage,
  type GenerateRequest,
  GenerateRequestSchema,
  type GenerateResponse,
  type PositionLogprobs as PositionLogprobsMessage,
} from "./gen/constraintd/runner/v1/generation_service_pb.js";
import type { SamplerConfig } from "./gen/constraintd/v1/sampler_pb.js";
import type { ReasoningEnd } from "./gen/constraintd/v1/session_pb.js";
import { type Text, utf8 } from "./json.js";
import { type ToolAnswer, toolAnswerOf } from "./tools.js";

/** Text, chat messages, or token ids. */
export type Prompt = Text | readonly ChatMessage[] | readonly number[] | Uint32Array;

/** What a generation is asked for. */
export interface GenerateOptions {
  /** What the text must satisfy. For nothing at all, say `unconstrained()`. */
  readonly constraint: ConstraintLike;
  /** How tokens are picked, and when it ends. Default: by draw, up to what is left of the model's context. */
  readonly sampler?: SamplerConfig;
  /** Where the model's reasoning ends. Default: it does not reason. */
  readonly reasoningEnd?: ReasoningEnd;
  /** Asks for log probabilities, with so many, 0 to 20, of the most probable tokens at each position. Default: none. */
  readonly logprobs?: number;
  /** What a chat's template tells the model of. Default: the tools of the constraint; [] keeps them out. */
  readonly tools?: Tools;
  /** It outlives its runner: see `GenerationClient.generate`. Default: false. */
  readonly resumable?: boolean;
  /** 16 random bytes. Default: they are picked, by this side if it is resumable. */
  readonly sessionId?: Uint8Array;
}

/** The session is open and the prompt is in; of a resumed generation: it is this runner's now. */
export interface Started {
  readonly kind: "started";
  /** The session's id at the daemon. */
  readonly sessionId: Uint8Array;
  /** The seed in force. */
  readonly seed: bigint;
  /** Prompt length in tokens. */
  readonly promptTokens: number;
}

/** A token and the natural logarithm of its probability. */
export interface TokenLogprob {
  readonly tokenId: number;
  readonly logprob: number;
}

/** The log probabilities at one position, after the mask and before penalties and stages. */
export interface PositionLogprobs {
  /** The token that was taken. */
  readonly taken: TokenLogprob;
  /** The most probable ones, descending; fewer where fewer are legal. */
  readonly top: readonly TokenLogprob[];
}

/** What has been generated since the last Delta. */
export interface Delta {
  readonly kind: "delta";
  /** Tokens, in order; their text may come in a later Delta. */
  readonly tokenIds: readonly number[];
  /** Newly settled text: never taken back, never part of a stop string, never half a character. */
  readonly text: string;
  /** One a token, if they were asked for; none for tokens from before a resume. */
  readonly logprobs: readonly PositionLogprobs[];
}

/** What a generation took; times in microseconds. */
export interface Usage {
  readonly promptTokens: number;
  /** Tokens generated, the terminal one included. */
  readonly completionTokens: number;
  readonly prefillUs: number;
  readonly decodeUs: number;
  /** Time that the decode loop stood still for this session's masks, with its median and 99th percentile a token. */
  readonly maskWaitUs: number;
  readonly maskWaitUsP50: number;
  readonly maskWaitUsP99: number;
  /** Bytes of this session's Steps and Directives. */
  readonly wireBytes: number;
}

/** The end of a generation that did not fail. */
export interface Finished {
  readonly kind: "finished";
  readonly finish: Finish;
  readonly usage: Usage;
  /** The answer taken apart, for a constraint that has `toolCalls`. */
  readonly toolAnswer: ToolAnswer | undefined;
}

/** What a generation tells. */
export type GenerationEvent = Started | Delta | Finished;

/** How far a caller has come. */
export interface Seen {
  readonly tokens: number;
  /** Of UTF-8. */
  readonly textBytes: number;
}

/** The request. Throws TypeError for a prompt that is none, or has tools and is no chat. */
export function generateRequest(prompt: Prompt, options: GenerateOptions): GenerateRequest {
  const { sampler, reasoningEnd, logprobs, tools, resumable = false } = options;
  // A resumable one has its id from here, so that a caller that loses the very first answer can resume, too.
  const sessionId = options.sessionId ?? (resumable ? randomBytes(16) : undefined);
  return create(GenerateRequestSchema, {
    prompt: promptOf(prompt, tools),
    constraint: constraintMessage(options.constraint),
    resumable,
    ...(sampler ? { sampler } : {}),
    ...(reasoningEnd ? { reasoningEnd } : {}),
    ...(logprobs === undefined ? {} : { logprobs }),
    ...(sessionId ? { sessionId } : {}),
  });
}

/** The next event; undefined for one that is newer than this client. Throws `MalformedAnswer`. */
export function eventOf({ event }: GenerateResponse): GenerationEvent | undefined {
  switch (event.case) {
    case "started": {
      const { sessionId, seed, promptTokens } = event.value;
      return { kind: "started", sessionId, seed, promptTokens: exactNumber(promptTokens, "prompt_tokens") };
    }
    case "delta": {
      const { tokenIds, text, logprobs } = event.value;
      return { kind: "delta", tokenIds, text, logprobs: logprobs.map(logprobsOf) };
    }
    case "finished":
      return finishedOf(event.value);
    default:
      return undefined;
  }
}

function promptOf(prompt: Prompt, tools: Tools | undefined): GenerateRequest["prompt"] {
  const isChat = Array.isArray(prompt) && prompt.length > 0 && prompt.every((each) => typeof each === "object");
  if (isChat) return { case: "chat", value: chatPrompt(prompt as readonly ChatMessage[], tools) };
  if (tools !== undefined)
    throw new TypeError("tools are for a chat's template: give the prompt as a list of messages");
  if (typeof prompt === "string" || prompt instanceof Uint8Array) return { case: "text", value: utf8(prompt) };
  const ids = Array.from(prompt as Iterable<unknown>);
  if (!ids.every((id): id is number => typeof id === "number")) {
    throw new TypeError("a prompt is text, a list of chat messages, or a list of token ids, not a mixture");
  }
  return { case: "tokens", value: { $typeName: "constraintd.runner.v1.TokenPrompt", ids } };
}

function logprobsOf({ taken, top }: PositionLogprobsMessage): PositionLogprobs {
  if (!taken) throw new MalformedAnswer("log probabilities without the taken token's");
  const pair = ({ tokenId, logprob }: TokenLogprob) => ({ tokenId, logprob });
  return { taken: pair(taken), top: top.map(pair) };
}

function finishedOf({ finish, usage, toolAnswer }: FinishedMessage): Finished {
  if (!finish || !usage) throw new MalformedAnswer("Finished has no finish or no usage");
  return {
    kind: "finished",
    finish: finishOf(finish),
    usage: {
      promptTokens: exactNumber(usage.promptTokens, "prompt_tokens"),
      completionTokens: exactNumber(usage.completionTokens, "completion_tokens"),
      prefillUs: exactNumber(usage.prefillUs, "prefill_us"),
      decodeUs: exactNumber(usage.decodeUs, "decode_us"),
      maskWaitUs: exactNumber(usage.maskWaitUs, "mask_wait_us"),
      maskWaitUsP50: usage.maskWaitUsP50,
      maskWaitUsP99: usage.maskWaitUsP99,
      wireBytes: exactNumber(usage.wireBytes, "wire_bytes"),
    },
    toolAnswer: toolAnswer && toolAnswerOf(toolAnswer),
  };
}
