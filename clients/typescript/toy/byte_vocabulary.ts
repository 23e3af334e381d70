import type { TokenTableSource } from "../src/index.js";

const EOG = 256;
const TOOL = 257;
const SECOND_EOG = 258;

/**
 * The vocabulary of bytes: ids 0 to 255 are the bytes, 256 and 258 end the text, 257 is a special token that spells
 * "<tool>", 259 is a hole, 260 is the text "<tool>", 261 is "ab", 262 is a second "a"; the logits row is wider.
 */
export const BYTE_VOCABULARY: TokenTableSource & { readonly logitsWidth: number } = {
  tokens: [
    ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
    ...[null, null, null, null],
    ...["<tool>", "ab", "a"].map((text) => Buffer.from(text)),
  ],
  special: new Map([
    [EOG, "</s>"],
    [TOOL, "<tool>"],
    [SECOND_EOG, "<|end|>"],
  ]),
  eogIds: [EOG, SECOND_EOG],
  logitsWidth: 300,
};
