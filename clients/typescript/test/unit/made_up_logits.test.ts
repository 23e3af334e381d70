import assert from "node:assert/strict";
import { test } from "node:test";
import { MadeUpModel, splitMix64 } from "../../toy/made_up_logits.js";

test("splitmix64 gives its published first numbers", () => {
  // The reference implementation's first outputs for the seed 1234567: each state is one constant further on.
  const states = [0n, 1n, 2n].map((n) => (1234567n + n * 0x9e3779b97f4a7c15n) & ((1n << 64n) - 1n));
  assert.deepEqual(states.map(splitMix64), [6457827717110365317n, 3203168211198807973n, 9817491932198370423n]);
});

test("logits depend on the tokens before, however they were fed, and lie in [-6, 6)", () => {
  const [whole, parts, other] = [new MadeUpModel(64), new MadeUpModel(64), new MadeUpModel(64)];
  whole.feed([1, 70_000, 3]);
  parts.feed([1]);
  parts.feed([70_000, 3]);
  other.feed([3, 70_000, 1]);
  assert.deepEqual(whole.logits(), parts.logits());
  assert.notDeepEqual(whole.logits(), other.logits());
  assert.ok(whole.logits().every((logit) => logit >= -6 && logit < 6));
});
