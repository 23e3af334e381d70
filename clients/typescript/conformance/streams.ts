import type { Operation } from "./request.js";
import { spelledSession } from "./spelled.js";

/** The Decode stream, which mends itself. */
export const STREAM_CALLS: Readonly<Record<string, Operation>> = {
  async stream(held, request) {
    const vocabulary = { vocabularyId: request.vocabulary_id, logitsWidth: request.logits_width };
    held.streams.set(request.stream, await held.daemon(request).decodeStream(vocabulary));
  },

  send(held, request) {
    const reports = request.steps.map(({ session, tokens, surprisals }) => {
      return { session: held.session({ session }), tokens, surprisals };
    });
    held.stream(request).send(reports);
  },

  async take(held, request) {
    const session = held.session(request);
    await held.stream(request).take(session, { timeoutMs: request.timeout_ms as number });
    return spelledSession(session);
  },

  forget(held, request) {
    held.stream(request).forget(held.session(request));
  },

  reconnect(held, request) {
    held.stream(request).reconnect();
  },

  close_stream(held, request) {
    held.stream(request).close();
  },
};
