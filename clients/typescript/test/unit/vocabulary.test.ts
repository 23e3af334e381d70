import assert from "node:assert/strict";
import { test } from "node:test";
import { spell } from "../../src/index.js";
import { CHUNK_BYTES, encodeTable, parseTable, uploadMessages } from "../../src/vocabulary.js";

const bytes = (text: string) => Buffer.from(text);
const info = (tokenCount: number) => ({
  ...{ vocabularyId: "v", tokenCount, logitsWidth: 8, eogIds: [2], bosId: undefined, hasEncoder: false },
});
const TABLE = encodeTable({
  tokens: [bytes("a"), null, bytes("x"), bytes("")],
  special: new Map([[2, "</s>"]]),
  eogIds: [2],
});

test("a table has the layout that the protocol names", () => {
  assert.equal(
    Buffer.from(TABLE).toString("hex"),
    ["43445441424c4501", "000100000061", "0200000000", "01040000003c2f733e", "0000000000"].join(""),
  );
});

test("a special id past the list lengthens the table", () => {
  const table = parseTable(
    info(3),
    Buffer.from(encodeTable({ tokens: [], special: new Map([[2, "é"]]), eogIds: [2] })),
  );
  assert.deepEqual([...table.special], [[2, "é"]]);
  assert.equal(table.tokens.length, 3);
});

test("a table that was read back spells its tokens", () => {
  const table = parseTable(info(4), Buffer.from(TABLE));
  assert.equal(Buffer.from(spell(table, [0, 2, 0])).toString(), "aa");
  assert.throws(() => spell(table, [4]), /token 4 is past the table/);
});

test("a table that is cut off, garbled or of another length is refused", () => {
  for (let length = 8; length < TABLE.length; length++) {
    assert.throws(() => parseTable(info(4), Buffer.from(TABLE.subarray(0, length))), /MalformedAnswer|records|cut off/);
  }
  assert.throws(() => parseTable(info(4), bytes("CDTABLE")), /begins with/);
  assert.throws(() => parseTable(info(4), Buffer.concat([TABLE, Buffer.from([9, 0, 0, 0, 0])])), /unknown kind/);
});

test("files go in chunks, and an empty file is sent, too", () => {
  const messages = [
    ...uploadMessages({
      format: "tekken",
      tokenizer: new Uint8Array(2 * CHUNK_BYTES + 1),
      generationConfig: new Uint8Array(),
    }),
  ];
  const sizes = messages.slice(1).map(({ part }) => (part?.case === "chunk" ? part.value.data?.length : -1));
  assert.deepEqual(sizes, [CHUNK_BYTES, CHUNK_BYTES, 1, 0]);
  assert.throws(() => [...uploadMessages({ format: "gguf" as "tekken", tokenizer: bytes("") })], /format is "gguf"/);
});
