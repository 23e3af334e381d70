import assert from "node:assert/strict";
import { test } from "node:test";
import { allowedIds, applyMask, isAllowed } from "../../src/index.js";

const LOW = Number.NEGATIVE_INFINITY;

test("bit i of word w is token 32 * w + i", () => {
  const mask = Uint32Array.of(0x80000001, 0b100);
  assert.deepEqual([...allowedIds(mask)], [0, 31, 34]);
  assert.deepEqual([...allowedIds(mask, 34)], [0, 31]);
  assert.deepEqual(
    [0, 1, 31, 34, 35, 64, 999].map((token) => isAllowed(mask, token)),
    [...[true, false, true, true, false, false, false]],
  );
});

test("forbidden logits become -Infinity, and nothing else changes", () => {
  const logits = Float32Array.from({ length: 70 }, (_, token) => token);
  logits[33] = LOW;
  applyMask(logits, Uint32Array.of(0, 0b11, 0xffffffff));
  const expected = Array.from({ length: 70 }, (_, token) => (token === 32 || token >= 64 ? token : LOW));
  assert.deepEqual([...logits], expected);
});

test("a full and an empty word beside each other", () => {
  const logits = new Float32Array(64).fill(1);
  applyMask(logits, Uint32Array.of(0xffffffff, 0));
  assert.deepEqual([...logits], [...new Array(32).fill(1), ...new Array(32).fill(LOW)]);
});

test("a mask of another width is refused before anything is written", () => {
  const logits = new Float32Array(33);
  assert.throws(() => applyMask(logits, Uint32Array.of(0)), /33 logits need a mask of 2 words, not of 1/);
  assert.throws(() => applyMask([1] as unknown as Float32Array, Uint32Array.of(0)), TypeError);
  assert.ok(logits.every((logit) => logit === 0));
});
