import { fromJson } from "@bufbuild/protobuf";
import { ConstraintClient, GrammarSchema, modelInput, Session, spell } from "../src/index.js";
import type { Held } from "./held.js";
import {
  bytesOf,
  changesOf,
  connectOptions,
  constraintOf,
  type Operation,
  type Request,
  samplerOf,
  sessionIdOf,
} from "./request.js";
import { hexOf, spelledSession } from "./spelled.js";

/** The daemon's calls, and what a case does to a handle. */
export const DAEMON_CALLS: Readonly<Record<string, Operation>> = {
  connect(held, request) {
    held.daemons.set(request.client ?? "main", new ConstraintClient(request.targets, connectOptions(request)));
  },

  async register(held, request) {
    const info = await held.daemon(request).registerTokenTable({
      tokens: request.tokens.map((token) => (token === null ? null : bytesOf(token as string))),
      special: new Map(Object.entries(request.special).map(([id, spelling]) => [Number(id), spelling])),
      eogIds: request.eog_ids,
      logitsWidth: request.logits_width,
    });
    return {
      vocabulary_id: info.vocabularyId,
      token_count: info.tokenCount,
      logits_width: info.logitsWidth,
      eog_ids: info.eogIds,
      has_encoder: info.hasEncoder,
    };
  },

  async token_table(held, request) {
    const table = await held.daemon(request).tokenTable(request.vocabulary_id);
    return {
      tokens: table.tokens.map(hexOf),
      special: Object.fromEntries(table.special),
      text: hexOf(spell(table, request.spell)),
    };
  },

  async compile(held, request) {
    const grammar = fromJson(GrammarSchema, request.grammar);
    const { grammarId, report } = await held.daemon(request).compileGrammar(request.vocabulary_id, grammar);
    return {
      grammar_id: grammarId,
      report: report.map(({ pointer, keyword, verdict }) => [pointer, keyword, verdict]),
    };
  },

  async open(held, request) {
    const session = await held.daemon(request).openSession({
      vocabularyId: request.vocabulary_id,
      constraint: constraintOf(request),
      promptTokens: request.prompt_tokens ?? [],
      ...samplerOf(request),
      ...sessionIdOf(request),
    });
    return keep(held, request, session);
  },

  /** Another handle of a session, as somebody holds it who knows another place. */
  handle(held, request) {
    const known = held.session({ session: request.of });
    const directive = { ...known.directive, position: request.position ?? known.position };
    const epoch = request.epoch === undefined ? known.epoch : BigInt(request.epoch);
    return keep(held, request, new Session(known.id, epoch, directive, known.sampler));
  },

  async step(held, request) {
    const session = held.session(request);
    const { surprisals, passes = [] } = request;
    await held.daemon(request).step({ session, tokens: request.tokens as number[], surprisals, passes });
    return spelledSession(session);
  },

  async update(held, request) {
    const session = held.session(request);
    await held.daemon(request).updateSession(session, {
      ...(request.constraint === undefined ? {} : { constraint: constraintOf(request) }),
      ...(request.new_turn === undefined ? {} : { newTurn: request.new_turn }),
      ...samplerOf(request),
      ...changesOf(request),
    });
    return spelledSession(session);
  },

  async rollback(held, request) {
    const session = held.session(request);
    await held.daemon(request).rollbackSession(session, request.to_position, changesOf(request));
    return spelledSession(session);
  },

  async fork(held, request) {
    const parent = held.session({ session: request.of });
    const session = await held.daemon(request).forkSession(parent.id, request.position as number, {
      newSessionId: bytesOf(request.session_id as string),
      ...changesOf(request),
    });
    return keep(held, request, session);
  },

  async resume(held, request) {
    const resumed = await held.daemon(request).resumeSession(bytesOf(request.session_id as string));
    return {
      ...keep(held, request, resumed.session),
      vocabulary_id: resumed.vocabularyId,
      turns: resumed.turns.map(({ position, promptTokens }) => [position, promptTokens]),
      tokens: resumed.tokens,
      passes: resumed.passes,
      model_input: modelInput(resumed),
    };
  },

  async export(held, request) {
    return { envelope: hexOf(await held.daemon(request).exportSession(held.session(request).id)) };
  },

  async import(held, request) {
    return keep(held, request, await held.daemon(request).importSession(bytesOf(request.envelope)));
  },

  async close(held, request) {
    return { closed: await held.daemon(request).closeSession(held.session(request).id) };
  },

  async get(held, request) {
    const { tokens, surprisals, session } = await held.daemon(request).getSession(held.session(request).id);
    return { tokens, surprisals, position: Number(session?.position) };
  },

  async list(held, request) {
    const ids: string[] = [];
    for await (const { sessionId } of held.daemon(request).listSessions()) ids.push(hexOf(sessionId));
    return { session_ids: ids };
  },
};

function keep(held: Held, request: Request, session: Session): object {
  held.sessions.set(request.session, session);
  return spelledSession(session);
}
