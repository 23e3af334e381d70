/**
 * A runner without a model: it drives all the sessions of a file at once, over one Decode stream, with logits that are a
 * hash of the tokens before, through restarts of the daemon; then it prints a line of JSON for each. Started again with
 * the same file, it goes on with the sessions that there are. Exit status 1 if a session failed.
 *
 *   node build/toy/toy_runner.js --daemon unix:/tmp/constraintd.sock --vocabulary-tokens byte --sessions FILE.json
 */
import { parseArgs } from "node:util";
import {
  Chain,
  ConstraintClient,
  ConstraintdError,
  type DecodeStream,
  modelInput,
  retrying,
  type Session,
  type VocabularyInfo,
} from "../src/index.js";
import { BYTE_VOCABULARY } from "./byte_vocabulary.js";
import { MadeUpModel } from "./made_up_logits.js";
import { readSessionFile, type WantedSession } from "./session_file.js";

interface Outcome {
  readonly session_id: string;
  readonly tokens: readonly number[];
  /** The finish's reason, "dead_end", or "error". */
  readonly finish: string;
  readonly error?: string;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      daemon: { type: "string" },
      "vocabulary-tokens": { type: "string", default: "byte" },
      sessions: { type: "string" },
      "one-stream": { type: "boolean", default: true },
      patience: { type: "string", default: "30" },
    },
  });
  const patienceMs = 1000 * Number(values.patience);
  if (!values.daemon || !values.sessions) throw new TypeError("--daemon TARGET and --sessions FILE are needed");
  if (!(patienceMs > 0)) throw new TypeError(`--patience is ${values.patience}; expected seconds`);
  if (values["vocabulary-tokens"] !== "byte") throw new TypeError('the only --vocabulary-tokens is "byte"');
  const wanted = readSessionFile(values.sessions);

  const client = new ConstraintClient(values.daemon.split(","));
  try {
    const again = <T>(call: () => Promise<T>) => retrying(call, { patienceMs });
    const vocabulary = await again(() => client.registerTokenTable(BYTE_VOCABULARY));
    using stream = await again(() => client.decodeStream(vocabulary, { patienceMs }));
    const outcomes: Outcome[] = await Promise.all(
      wanted.map(async (each): Promise<Outcome> => {
        const tokens: number[] = [];
        const session_id = Buffer.from(each.sessionId).toString("hex");
        try {
          const finish = await generate(each, { client, vocabulary, stream, patienceMs, again, tokens });
          return { session_id, tokens, finish };
        } catch (error) {
          if (!(error instanceof ConstraintdError)) throw error;
          return { session_id, tokens, finish: "error", error: error.message };
        }
      }),
    );
    for (const outcome of outcomes) console.log(JSON.stringify(outcome));
    if (outcomes.some(({ finish }) => finish === "error")) process.exitCode = 1;
  } finally {
    client.close();
  }
}

interface Place {
  readonly patienceMs: number;
  readonly client: ConstraintClient;
  readonly vocabulary: VocabularyInfo;
  readonly stream: DecodeStream;
  readonly again: <T>(call: () => Promise<T>) => Promise<T>;
  /** Gets the session's tokens. */
  readonly tokens: number[];
}

/** Drives one session to its end; gives the finish's reason, or "dead_end". */
async function generate(wanted: WantedSession, place: Place): Promise<string> {
  const { stream, patienceMs, again, tokens } = place;
  const { session, input, taken } = await again(() => takeUp(wanted, place));
  tokens.push(...taken);
  const model = new MadeUpModel(place.vocabulary.logitsWidth);
  model.feed(input);
  const chain = Chain.of(session.sampler);
  while (session.directive.kind === "mask") {
    const { token, surprisal } = chain.pick(model.logits(), session.directive);
    const step = async () => {
      stream.send([{ session, tokens: [token], surprisals: [surprisal] }]);
      await stream.take(session, { timeoutMs: Number.POSITIVE_INFINITY }); // the stream has its own patience
    };
    // A refused step may pass by itself, such as while the store is away; a stream that has failed was waited for.
    await retrying(step, { patienceMs, giveUp: () => stream.failure !== undefined });
    model.feed([token]);
    tokens.push(token);
  }
  return session.directive.kind === "finish" ? session.directive.finish.reason : "dead_end";
}

/** The session, if there is one of that id, else a new one; with the model's input so far. */
async function takeUp(
  wanted: WantedSession,
  { client, vocabulary }: Place,
): Promise<{ session: Session; input: readonly number[]; taken: readonly number[] }> {
  try {
    const resumed = await client.resumeSession(wanted.sessionId);
    return { session: resumed.session, input: modelInput(resumed), taken: resumed.tokens };
  } catch (error) {
    if (!(error instanceof ConstraintdError) || error.reason !== "UNKNOWN_SESSION") throw error;
    const session = await client.openSession({ ...wanted, vocabularyId: vocabulary.vocabularyId });
    return { session, input: wanted.promptTokens, taken: [] };
  }
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
});
