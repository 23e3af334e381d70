import { create } from "@bufbuild/protobuf";
import { type AskOptions, ask, askForStream } from "./calls.js";
import type { CallOptions, ClientOptions } from "./client.js";
import {
  type GenerateRequest,
  GenerationService,
  type GetModelInfoResponse,
  type ResumeGenerationRequest,
  ResumeGenerationRequestSchema,
} from "./gen/constraintd/runner/v1/generation_service_pb.js";
import { Generation, type Streams } from "./generation.js";
import { type GenerateOptions, generateRequest, type Prompt, type Seen } from "./generation_events.js";
import { Patience } from "./patience.js";
import { Targets } from "./transport.js";

const methods = GenerationService.method;
const NOTHING_SEEN: Seen = { tokens: 0, textBytes: 0 };

/** How long a generation may take. */
export interface GenerationTimes {
  /** Milliseconds for the whole of it. Default: no limit. */
  readonly timeoutMs?: number;
  /** Cancels it; whoever iterates gets `Cancelled`. */
  readonly signal?: AbortSignal;
  /** Milliseconds that one break of a resumable generation may last. Default: 30,000. */
  readonly resumeTimeoutMs?: number;
}

/** Where a generation is taken up. */
export interface ResumeOptions extends GenerationTimes {
  /** What the caller has seen already (`Generation.seen`); text and tokens begin behind it. Default: nothing. */
  readonly seen?: Seen;
  /** Bit by bit as if it had not been interrupted, at the price of a slow start; see `ResumeGenerationRequest`. */
  readonly exact?: boolean;
  /** See `GenerateOptions`. */
  readonly logprobs?: number;
}

/** A connection to a runner, or to several of the same model. */
export class GenerationClient {
  readonly #targets: Targets;
  readonly #timeoutMs: number;

  /**
   * `targets`: "host:port" or "unix:/path", or several: the next is used once one can't be reached. `timeoutMs` is that
   * of `modelInfo` and `closeGeneration`. Throws TypeError for unusable options.
   */
  constructor(targets: string | readonly string[], options: ClientOptions = {}) {
    this.#targets = new Targets(targets, options);
    this.#timeoutMs = options.timeoutMs ?? 30_000;
  }

  /** The address in use. */
  get target(): string {
    return this.#targets.present;
  }

  /**
   * Starts a generation. The runner's refusals come when iterating: INVALID_GRAMMAR, NO_TOKEN_ALLOWED,
   * CONTEXT_EXCEEDED, DAEMON_UNAVAILABLE and so on.
   *
   * `resumable`: it outlives its runner. When that can't be reached any more, the next address goes on with it, within
   * `resumeTimeoutMs` a break, and the events go on without a gap or a repetition; `ResumeGenerationRequest` says what
   * a resume may change. Its session stays until `closeGeneration`, or until the daemon closes it as idle.
   */
  generate(prompt: Prompt, options: GenerateOptions & GenerationTimes): Generation {
    const request = generateRequest(prompt, options);
    const begin = (call: AskOptions) => askForStream(this.#targets, methods.generate, request, call);
    return this.#run(request, begin, options, NOTHING_SEEN, request.resumable);
  }

  /**
   * Goes on with a resumable generation behind what was seen, at this runner, whichever began it. Whoever still runs it
   * gets STALE_EPOCH. Reasons: UNKNOWN_SESSION, VOCABULARY_MISMATCH, CONTEXT_EXCEEDED, and INVALID_FIELD for more than
   * there is to be seen.
   */
  resume(sessionId: Uint8Array, options: ResumeOptions = {}): Generation {
    const { seen = NOTHING_SEEN, exact = false, logprobs } = options;
    const request = resumeRequest({ sessionId, exact, logprobs }, seen);
    const begin = (call: AskOptions) => askForStream(this.#targets, methods.resumeGeneration, request, call);
    return this.#run(request, begin, options, seen, true);
  }

  /** Forgets a resumable generation. False if there was none. */
  async closeGeneration(sessionId: Uint8Array, options: CallOptions = {}): Promise<boolean> {
    const call = { timeoutMs: options.timeoutMs ?? this.#timeoutMs, signal: options.signal };
    return (await ask(this.#targets, methods.closeGeneration, { sessionId }, call)).closed;
  }

  /** What this runner runs. */
  modelInfo(options: CallOptions = {}): Promise<GetModelInfoResponse> {
    const call = { timeoutMs: options.timeoutMs ?? this.#timeoutMs, signal: options.signal };
    return ask(this.#targets, methods.getModelInfo, {}, call);
  }

  /** Ends the connection and every generation on it. */
  close(): void {
    this.#targets.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #run(
    request: GenerateRequest | ResumeGenerationRequest,
    begin: (call: AskOptions) => ReturnType<Streams["begin"]>,
    { timeoutMs, signal, resumeTimeoutMs = 30_000 }: GenerationTimes,
    before: Seen,
    heals: boolean,
  ): Generation {
    const until = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    const call = () => ({ timeoutMs: until === undefined ? undefined : until - performance.now(), signal });
    const exact = "exact" in request && request.exact;
    const { sessionId = new Uint8Array(), logprobs } = request;
    const streams: Streams = {
      begin: () => begin(call()),
      goOn: (seen, anew) => {
        if (anew) return begin(call());
        const next = resumeRequest({ sessionId, exact, logprobs }, seen);
        return askForStream(this.#targets, methods.resumeGeneration, next, call());
      },
      canBeginAnew: request.$typeName === "constraintd.runner.v1.GenerateRequest",
    };
    return new Generation(streams, { patience: heals ? new Patience(resumeTimeoutMs) : undefined, signal, before });
  }
}

function resumeRequest(
  { sessionId, exact, logprobs }: { sessionId: Uint8Array; exact: boolean; logprobs: number | undefined },
  seen: Seen,
): ResumeGenerationRequest {
  return create(ResumeGenerationRequestSchema, {
    sessionId,
    seenTokens: BigInt(seen.tokens),
    seenTextBytes: BigInt(seen.textBytes),
    exact,
    ...(logprobs === undefined ? {} : { logprobs }),
  });
}
