import { randomBytes } from "node:crypto";
import { type AskOptions, ask, askForStream, upload } from "./calls.js";
import { type ConstraintLike, constraintMessage } from "./constraints.js";
import { DecodeStream, type DecodeStreamOptions } from "./decode_stream.js";
import { type Directive, directiveOf, exactNumber } from "./directive.js";
import { ConstraintService, type GetServerInfoResponse } from "./gen/constraintd/v1/constraint_service_pb.js";
import { type CompileLimits, type Grammar, KeywordVerdict } from "./gen/constraintd/v1/grammar_pb.js";
import type { SamplerConfig } from "./gen/constraintd/v1/sampler_pb.js";
import type { GetSessionResponse, ReasoningEnd, Session as SessionInfo } from "./gen/constraintd/v1/session_pb.js";
import { nameOf } from "./names.js";
import {
  move,
  openedBy,
  type ResumedSession,
  resumedOf,
  type Session,
  type StepReport,
  stepMessage,
} from "./session.js";
import { type ConnectOptions, Targets } from "./transport.js";
import {
  encodeTable,
  type TokenTable,
  type TokenTableSource,
  tableOf,
  uploadMessages,
  type VocabularyInfo,
  type VocabularySource,
  vocabularyOf,
} from "./vocabulary.js";

const methods = ConstraintService.method;

/** What a client's calls may be given, one by one. */
export interface CallOptions {
  /** Milliseconds for this call. Default: the client's. */
  readonly timeoutMs?: number;
  /** Cancels it; it then rejects with `Cancelled`. */
  readonly signal?: AbortSignal;
}

/** How a client connects, and how long its calls may take. */
export interface ClientOptions extends ConnectOptions {
  /** Milliseconds for each call; of generations and streams for what is not the stream itself. Default: 30,000. */
  readonly timeoutMs?: number;
}

/** What compiling came to. */
export interface CompiledGrammar {
  /** The same grammar has the same id everywhere; `compiled` makes a constraint of it. */
  readonly grammarId: string;
  /** Whether it was compiled for this vocabulary already. */
  readonly cached: boolean;
  /** Time that compiling took; 0 if cached. */
  readonly compileUs: number;
  /** Of a JSON Schema: what is made of each keyword. Empty for other kinds, which are enforced as they stand. */
  readonly report: readonly KeywordReport[];
}

/** What the daemon makes of one keyword of a JSON Schema at one place. */
export interface KeywordReport {
  /** JSON pointer of the keyword. */
  readonly pointer: string;
  readonly keyword: string;
  /** NARROWED: some valid spelling is not produced. APPROXIMATED: the output may violate it. A newer one: its number. */
  readonly verdict: "ENFORCED" | "NARROWED" | "APPROXIMATED" | "ANNOTATION" | (string & {});
  /** Why, in one sentence; empty where there is nothing to say. */
  readonly detail: string;
}

/** What opens a session. */
export interface OpenSessionOptions {
  readonly vocabularyId: string;
  readonly constraint: ConstraintLike;
  /** How tokens are picked, and when the session ends. Default: by draw, without end. */
  readonly sampler?: SamplerConfig;
  /** Default: none. */
  readonly promptTokens?: readonly number[];
  /** 16 random bytes; the same request again gives the same session. Default: they are picked. */
  readonly sessionId?: Uint8Array;
  /** Where the model's reasoning ends. Default: it does not reason. */
  readonly reasoningEnd?: ReasoningEnd;
}

/** What changes in a session; what is left out stays as it is. */
export interface UpdateSessionOptions {
  readonly constraint?: ConstraintLike;
  readonly sampler?: SamplerConfig;
  readonly reasoningEnd?: ReasoningEnd;
  /** Begins a new turn behind these prompt tokens, perhaps none: constraints begin anew, a finished session goes on. */
  readonly newTurn?: readonly number[];
  readonly seed?: bigint | number;
  /** 16 random bytes; a repeat under the same ones gets the first answer. Default: they are picked. */
  readonly requestId?: Uint8Array;
}

/**
 * A connection to the daemon: the kit for a runner of one's own.
 *
 * Every method rejects with a `ConstraintdError`, whose `reason` is the daemon's; with `Unavailable` if it can't be
 * reached, and `DeadlineExceeded` after `timeoutMs`. Nothing is tried again by itself, but for a `DecodeStream`: see
 * `retrying`.
 */
export class ConstraintClient {
  readonly #targets: Targets;
  readonly #timeoutMs: number;

  /**
   * `targets`: "host:port" or "unix:/path", or several, of daemons on the same store: the next is used once one can't be
   * reached. Throws TypeError for unusable options.
   */
  constructor(targets: string | readonly string[], options: ClientOptions = {}) {
    this.#targets = new Targets(targets, options);
    this.#timeoutMs = options.timeoutMs ?? 30_000;
  }

  /** The address in use. */
  get target(): string {
    return this.#targets.present;
  }

  /** Goes on to the next address (round again after the last), unless another than `target` is in use already. */
  leave(target: string): void {
    this.#targets.leave(target);
  }

  /** Versions, kinds and limits. */
  serverInfo(options: CallOptions = {}): Promise<GetServerInfoResponse> {
    return ask(this.#targets, methods.getServerInfo, {}, this.#call(options));
  }

  /** Uploads a vocabulary. Registering twice is free. Reasons: INVALID_VOCABULARY, TOO_LARGE, LIMIT_REACHED. */
  async registerVocabulary(source: VocabularySource, options: CallOptions = {}): Promise<VocabularyInfo> {
    const call = this.#call(options);
    return vocabularyOf(
      (await upload(this.#targets, methods.registerVocabulary, uploadMessages(source), call)).vocabulary,
    );
  }

  /** Registers a plain table of token bytes. Reasons: those of `registerVocabulary`. */
  registerTokenTable(table: TokenTableSource, options: CallOptions = {}): Promise<VocabularyInfo> {
    const { eogIds, logitsWidth } = table;
    const width = logitsWidth === undefined ? {} : { logitsWidth };
    const source = { format: "token_table", tokenizer: encodeTable(table), eogIds, ...width } as const;
    return this.registerVocabulary(source, options);
  }

  /** What every token spells. Reason: UNKNOWN_VOCABULARY. */
  async tokenTable(vocabularyId: string, options: CallOptions = {}): Promise<TokenTable> {
    const messages = [];
    const call = this.#call(options);
    for await (const message of askForStream(this.#targets, methods.getVocabulary, { vocabularyId }, call)) {
      messages.push(message);
    }
    return tableOf(messages);
  }

  /** Compiles a grammar. Reasons: INVALID_GRAMMAR, LIMIT_EXCEEDED, TOO_LARGE, UNKNOWN_VOCABULARY. */
  async compileGrammar(
    vocabularyId: string,
    grammar: Grammar,
    { limits, ...options }: CallOptions & { readonly limits?: CompileLimits } = {},
  ): Promise<CompiledGrammar> {
    const request = { vocabularyId, grammar, ...(limits ? { limits } : {}) };
    const answer = await ask(this.#targets, methods.compileGrammar, request, this.#call(options));
    return {
      grammarId: answer.grammarId,
      cached: answer.cached,
      compileUs: exactNumber(answer.compileUs, "compile_us"),
      report: answer.report.map(({ pointer, keyword, verdict, detail }) => ({
        pointer,
        keyword,
        verdict: nameOf(KeywordVerdict, verdict),
        detail,
      })),
    };
  }

  /**
   * Opens a session; the handle has its first Directive. Reasons: ALREADY_EXISTS, INVALID_GRAMMAR, UNKNOWN_GRAMMAR,
   * UNKNOWN_VOCABULARY, INVALID_FIELD, LIMIT_REACHED.
   */
  async openSession(session: OpenSessionOptions, options: CallOptions = {}): Promise<Session> {
    const { vocabularyId, sampler, promptTokens = [], reasoningEnd } = session;
    const sessionId = session.sessionId ?? randomBytes(16);
    const request = {
      sessionId,
      vocabularyId,
      constraint: constraintMessage(session.constraint),
      promptTokens: [...promptTokens],
      ...(sampler ? { sampler } : {}),
      ...(reasoningEnd ? { reasoningEnd } : {}),
    };
    return openedBy(sessionId, await ask(this.#targets, methods.openSession, request, this.#call(options)));
  }

  /** Reports accepted tokens with a call of their own, and moves the handle on. Slower than a `DecodeStream`. */
  async step(report: StepReport, options: CallOptions = {}): Promise<Directive> {
    const request = { step: stepMessage(report) };
    const answer = await ask(this.#targets, methods.step, request, this.#call(options));
    report.session.directive = directiveOf(answer.directive);
    return report.session.directive;
  }

  /**
   * Changes a session from its present position on, and moves the handle on. Reasons: STALE_EPOCH, POSITION_GAP,
   * STALE_POSITION, SESSION_FINISHED (after a terminal token, without `newTurn`), and those of opening.
   */
  async updateSession(session: Session, update: UpdateSessionOptions, options: CallOptions = {}): Promise<Directive> {
    const { constraint, sampler, reasoningEnd, newTurn, seed } = update;
    const request = {
      ...placeOf(session, update.requestId),
      ...(constraint ? { constraint: constraintMessage(constraint) } : {}),
      ...(sampler ? { sampler } : {}),
      ...(reasoningEnd ? { reasoningEnd } : {}),
      ...(newTurn ? { newTurn: { promptTokens: [...newTurn] } } : {}),
      ...(seed === undefined ? {} : { seed: BigInt(seed) }),
    };
    return move(session, await ask(this.#targets, methods.updateSession, request, this.#call(options)));
  }

  /**
   * Returns a session to an earlier position, and moves the handle there. Without `seed`, a session whose caller gave
   * none draws anew, any other as before. Reasons: those of `updateSession`.
   */
  async rollbackSession(
    session: Session,
    toPosition: number,
    { seed, requestId, ...options }: CallOptions & Pick<UpdateSessionOptions, "seed" | "requestId"> = {},
  ): Promise<Directive> {
    const request = {
      ...placeOf(session, requestId),
      toPosition: BigInt(toPosition),
      ...(seed === undefined ? {} : { seed: BigInt(seed) }),
    };
    return move(session, await ask(this.#targets, methods.rollbackSession, request, this.#call(options)));
  }

  /**
   * A session of its own that shares the history up to `position`; the parent is left alone. Reasons: UNKNOWN_SESSION,
   * ALREADY_EXISTS, INVALID_FIELD, LIMIT_REACHED.
   */
  async forkSession(
    sessionId: Uint8Array,
    position: number,
    fork: CallOptions & { readonly newSessionId?: Uint8Array; readonly seed?: bigint | number } = {},
  ): Promise<Session> {
    const { newSessionId = randomBytes(16), seed, ...options } = fork;
    const seeded = seed === undefined ? {} : { seed: BigInt(seed) };
    const request = { sessionId, position: BigInt(position), newSessionId, ...seeded };
    return openedBy(newSessionId, await ask(this.#targets, methods.forkSession, request, this.#call(options)));
  }

  /** Takes a session over; whoever held it is fenced off. Reasons: UNKNOWN_SESSION, STEP_IN_FLIGHT. */
  async resumeSession(sessionId: Uint8Array, options: CallOptions = {}): Promise<ResumedSession> {
    return resumedOf(sessionId, await ask(this.#targets, methods.resumeSession, { sessionId }, this.#call(options)));
  }

  /** A session as bytes, for `importSession` at any daemon that knows its vocabulary. Reason: UNKNOWN_SESSION. */
  async exportSession(sessionId: Uint8Array, options: CallOptions = {}): Promise<Uint8Array> {
    return (await ask(this.#targets, methods.exportSession, { sessionId }, this.#call(options))).envelope;
  }

  /**
   * Opens an exported session under its own id. Reasons: INVALID_ENVELOPE, REPLAY_DIVERGED, UNKNOWN_VOCABULARY,
   * ALREADY_EXISTS, LIMIT_REACHED.
   */
  async importSession(envelope: Uint8Array, options: CallOptions = {}): Promise<Session> {
    const answer = await ask(this.#targets, methods.importSession, { envelope }, this.#call(options));
    return openedBy(answer.sessionId, answer);
  }

  /** Forgets a session. False if there was none. */
  async closeSession(sessionId: Uint8Array, options: CallOptions = {}): Promise<boolean> {
    return (await ask(this.#targets, methods.closeSession, { sessionId }, this.#call(options))).closed;
  }

  /** What is known of a session, with its tokens. Reason: UNKNOWN_SESSION. */
  getSession(sessionId: Uint8Array, options: CallOptions = {}): Promise<GetSessionResponse> {
    return ask(this.#targets, methods.getSession, { sessionId }, this.#call(options));
  }

  /** All open sessions by ascending id, fetched page by page. `pageSize`: default the server's. */
  async *listSessions({
    pageSize = 0,
    ...options
  }: CallOptions & { readonly pageSize?: number } = {}): AsyncGenerator<SessionInfo, void, undefined> {
    let pageToken: Uint8Array = new Uint8Array();
    do {
      const page = await ask(this.#targets, methods.listSessions, { pageSize, pageToken }, this.#call(options));
      yield* page.sessions;
      pageToken = page.nextPageToken;
    } while (pageToken.length > 0);
  }

  /** A stream for the sessions of one vocabulary; it opens with the first Steps, and again whenever it breaks. */
  async decodeStream(
    vocabulary: Pick<VocabularyInfo, "vocabularyId" | "logitsWidth">,
    options: DecodeStreamOptions & CallOptions = {},
  ): Promise<DecodeStream> {
    const { limits } = await this.serverInfo(options);
    return new DecodeStream(this.#targets, vocabulary, limits?.maxBatchSteps || 1, options);
  }

  /** Ends the connection and every call on it. */
  close(): void {
    this.#targets.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #call({ timeoutMs = this.#timeoutMs, signal }: CallOptions): AskOptions {
    return { timeoutMs, signal };
  }
}

function placeOf(session: Session, requestId: Uint8Array = randomBytes(16)) {
  return { sessionId: session.id, epoch: session.epoch, position: BigInt(session.position), requestId };
}
