import type { MessageInitShape } from "@bufbuild/protobuf";
import { MalformedAnswer } from "./errors.js";
import {
  type GetVocabularyResponse,
  type RegisterVocabularyRequestSchema,
  VocabularyFile,
  VocabularyFormat,
  type Vocabulary as VocabularyMessage,
} from "./gen/constraintd/v1/vocabulary_pb.js";
import { utf8 } from "./json.js";
import { named } from "./names.js";

/** Bytes of a file that go into one upload message. */
export const CHUNK_BYTES = 1 << 20;

// Layout of a TOKEN_TABLE file: see VocabularyChunk.data in the protocol.
const MAGIC = Buffer.from("CDTABLE\u0001", "latin1");
const TEXT = 0;
const SPECIAL = 1;
const HOLE = 2;
const RECORD_BYTES = 5;

/** A registered vocabulary. */
export interface VocabularyInfo {
  /** 64 hex digits, a hash of its content. */
  readonly vocabularyId: string;
  /** Highest token id + 1, holes included. */
  readonly tokenCount: number;
  /** Columns of the model's logits row. */
  readonly logitsWidth: number;
  /** End-of-generation ids, ascending. */
  readonly eogIds: readonly number[];
  /** Beginning-of-sequence id, if the tokenizer names one. */
  readonly bosId: number | undefined;
  /** Whether the daemon can turn text into its tokens. */
  readonly hasEncoder: boolean;
}

/** A vocabulary's files, by their contents. */
export interface VocabularySource {
  readonly format: "tokenizer_json" | "sentencepiece" | "token_table" | "tiktoken" | "tekken";
  /** The tokenizer itself. */
  readonly tokenizer: Uint8Array;
  /** Columns of the model's logits row. Default: the tokenizer's highest id + 1. */
  readonly logitsWidth?: number;
  /** End-of-generation ids. Default: those of the configs, else the tokenizer's own. */
  readonly eogIds?: readonly number[];
  /** The model's generation_config.json. */
  readonly generationConfig?: Uint8Array;
  /** The model's tokenizer_config.json. */
  readonly tokenizerConfig?: Uint8Array;
  /** For "tiktoken" alone: the special tokens' spelling by id, which stand in code and not in the file. */
  readonly special?: ReadonlyMap<number, string>;
  /** For "tiktoken" alone: the pattern that cuts text before it is encoded. */
  readonly pattern?: string;
}

/** A plain table of token bytes. */
export interface TokenTableSource {
  /** The bytes of each id from 0 on; null where there is no such token. */
  readonly tokens: readonly (Uint8Array | null)[];
  /** Spelling of special tokens by id; an id in here overrides its entry in `tokens`. */
  readonly special?: ReadonlyMap<number, string>;
  /** End-of-generation ids, at least one. */
  readonly eogIds: readonly number[];
  /** Columns of the model's logits row. Default: the number of tokens. */
  readonly logitsWidth?: number;
}

/** What every token id spells. */
export interface TokenTable {
  readonly info: VocabularyInfo;
  /** Bytes of each token from id 0 on; empty for special tokens and for ids that no token has. */
  readonly tokens: readonly Uint8Array[];
  /** Spelling of each special token, by id. */
  readonly special: ReadonlyMap<number, string>;
}

/** The bytes that tokens spell; special tokens spell nothing. Throws RangeError for an id past the table. */
export function spell(table: TokenTable, ids: Iterable<number>): Uint8Array {
  return Buffer.concat(
    Array.from(ids, (id) => {
      const bytes = table.tokens[id];
      if (!bytes) throw new RangeError(`token ${id} is past the table, which has ${table.tokens.length} tokens`);
      return bytes;
    }),
  );
}

/** Translates a Vocabulary. */
export function vocabularyOf(message: VocabularyMessage | undefined): VocabularyInfo {
  if (!message) throw new MalformedAnswer("the answer has no vocabulary");
  const { vocabularyId, tokenCount, logitsWidth, eogIds, bosId, hasEncoder } = message;
  return { vocabularyId, tokenCount, logitsWidth, eogIds, bosId, hasEncoder };
}

/** A TOKEN_TABLE file. */
export function encodeTable({ tokens, special = new Map() }: TokenTableSource): Uint8Array {
  let count = tokens.length;
  for (const id of special.keys()) count = Math.max(count, id + 1);
  const parts: Uint8Array[] = [MAGIC];
  for (let id = 0; id < count; id++) {
    const spelling = special.get(id);
    const text = tokens[id] ?? null;
    const [kind, bytes] =
      spelling !== undefined ? [SPECIAL, utf8(spelling)] : text ? [TEXT, text] : [HOLE, new Uint8Array()];
    const head = Buffer.alloc(RECORD_BYTES);
    head.writeUInt8(kind, 0);
    head.writeUInt32LE(bytes.length, 1);
    parts.push(head, bytes);
  }
  return Buffer.concat(parts);
}

/** The table that a GetVocabulary answer gives. Throws `MalformedAnswer` if it can't be read. */
export function tableOf(messages: readonly GetVocabularyResponse[]): TokenTable {
  const first = messages[0]?.part;
  if (first?.case !== "vocabulary") throw new MalformedAnswer("the answer does not begin with the vocabulary");
  const chunks = messages.slice(1).map(({ part }) => (part.case === "table" ? part.value : new Uint8Array()));
  return parseTable(vocabularyOf(first.value), Buffer.concat(chunks));
}

/** Reads a TOKEN_TABLE file. Throws `MalformedAnswer` where it breaks off or has an unknown kind. */
export function parseTable(info: VocabularyInfo, table: Buffer): TokenTable {
  const tokens: Uint8Array[] = [];
  const special = new Map<number, string>();
  if (!table.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw new MalformedAnswer(
      `the token table begins with ${table.toString("hex", 0, 8)}, not ${MAGIC.toString("hex")}`,
    );
  }
  for (let offset = MAGIC.length; offset < table.length; ) {
    const begin = offset + RECORD_BYTES;
    const kind = table[offset];
    const end = begin <= table.length ? begin + table.readUInt32LE(offset + 1) : Number.POSITIVE_INFINITY;
    if (end > table.length || (kind !== TEXT && kind !== SPECIAL && kind !== HOLE)) {
      throw new MalformedAnswer(`the token table's record of id ${tokens.length} is cut off or of unknown kind`);
    }
    const bytes = table.subarray(begin, end);
    if (kind === SPECIAL) special.set(tokens.length, bytes.toString());
    tokens.push(kind === TEXT ? bytes : new Uint8Array());
    offset = end;
  }
  if (tokens.length !== info.tokenCount) {
    throw new MalformedAnswer(`the token table has ${tokens.length} records, expected ${info.tokenCount}`);
  }
  return { info, tokens, special };
}

/** The messages of one upload: the header, then every file in chunks. Throws TypeError for an unknown format. */
export function* uploadMessages(
  source: VocabularySource,
): Generator<MessageInitShape<typeof RegisterVocabularyRequestSchema>> {
  const { logitsWidth, eogIds = [], special = new Map(), pattern = "" } = source;
  yield {
    part: {
      case: "header",
      value: {
        format: named(VocabularyFormat, source.format, "format") as VocabularyFormat,
        ...(logitsWidth === undefined ? {} : { logitsWidth }),
        eogIds: [...eogIds],
        specialTokens: Array.from(special, ([id, spelling]) => ({ id, spelling: utf8(spelling) })),
        pattern: utf8(pattern),
      },
    },
  };
  yield* chunks(VocabularyFile.TOKENIZER, source.tokenizer);
  if (source.generationConfig) yield* chunks(VocabularyFile.GENERATION_CONFIG, source.generationConfig);
  if (source.tokenizerConfig) yield* chunks(VocabularyFile.TOKENIZER_CONFIG, source.tokenizerConfig);
}

function* chunks(
  file: VocabularyFile,
  data: Uint8Array,
): Generator<MessageInitShape<typeof RegisterVocabularyRequestSchema>> {
  // An empty file still sends one chunk: "there, and empty" is not "not there".
  for (let begin = 0; begin === 0 || begin < data.length; begin += CHUNK_BYTES) {
    yield { part: { case: "chunk", value: { file, data: data.subarray(begin, begin + CHUNK_BYTES) } } };
  }
}
