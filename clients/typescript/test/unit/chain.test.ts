import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import {
  Chain,
  greedy,
  mirostatV2,
  pickHighest,
  SamplerConfigSchema,
  SamplingError,
  samplerConfig,
  samplerPreset,
  temperature,
  topK,
  topP,
  typicalP,
} from "../../src/index.js";

const ALL = Uint32Array.of(0b1111);
const nothing = { adjustments: undefined, mu: undefined };

test("the draw picks the first id whose running sum exceeds its share of the total", () => {
  const row = Float32Array.of(0, 0, 0, 0); // four times 1/4, exact
  const picked = [0, 0.25, 0.4999, 0.5, 0.75, 0.9999].map(
    (draw) => Chain.of(samplerConfig([])).pick(row, { mask: ALL, draw, ...nothing }).token,
  );
  assert.deepEqual(picked, [0, 1, 1, 2, 3, 3]);
});

test("a forbidden token is never picked, however high its logit", () => {
  const row = Float32Array.of(100, 0, -5, -5);
  const mask = Uint32Array.of(0b1100);
  assert.deepEqual(Chain.of(samplerConfig([greedy()])).pick(row, { mask, draw: 0, ...nothing }), {
    token: 2,
    surprisal: 0,
  });
  assert.equal(Chain.of(samplerConfig([])).pick(row, { mask, draw: 0.9, ...nothing }).token, 3);
  assert.deepEqual([...row], [100, 0, -5, -5]);
});

test("the surprisal is in bits, after all stages", () => {
  const row = Float32Array.of(3, 3, 1, 1);
  const chain = Chain.of(samplerConfig([topK(2)]));
  assert.deepEqual(chain.pick(row, { mask: ALL, draw: 0.7, ...nothing }), { token: 1, surprisal: 1 });
});

test("greedy without a chain counts the adjustments, and breaks ties by the lowest id", () => {
  const row = Float32Array.of(1, 2, 2, 0);
  assert.equal(pickHighest(row, { mask: ALL }), 1);
  const adjustments = { ids: Uint32Array.of(1, 3), scales: Float64Array.of(4, 1), offsets: Float64Array.of(0, 9) };
  assert.equal(pickHighest(row, { mask: Uint32Array.of(0b0111), adjustments }), 2);
  assert.equal(pickHighest(row, { mask: ALL, adjustments }), 3);
});

test("temperature 0 is greedy, and nothing may follow it", () => {
  const row = Float32Array.of(1, 2, 3, 0);
  assert.equal(Chain.of(samplerConfig([temperature(0)])).pick(row, { mask: ALL, draw: 0, ...nothing }).token, 2);
  assert.throws(() => Chain.of(samplerConfig([temperature(0), topK(1)])), /stage 0 is greedy, .* another one follows/);
});

test("a stage that is newer than this client is refused, never left out", () => {
  const config = create(SamplerConfigSchema, { stages: [{ stage: { case: undefined } }] });
  assert.throws(() => Chain.of(config), /stage 0 is empty, or newer than this client/);
});

test("a preset has to be spelled out by the daemon", () => {
  assert.throws(() => Chain.of(samplerPreset("openai", { temperature: 1 })), /spelled out by the daemon/);
});

test("stages out of range are refused by name", () => {
  assert.throws(() => Chain.of(samplerConfig([topK(0)])), /top_k is 0; expected at least 1/);
  assert.throws(() => Chain.of(samplerConfig([temperature(Number.NaN)])), /temperature is NaN/);
});

test("mirostat without mu is refused", () => {
  const chain = Chain.of(samplerConfig([mirostatV2()]));
  assert.throws(() => chain.pick(Float32Array.of(1, 2, 3, 4), { mask: ALL, draw: 0, ...nothing }), /mu is undefined/);
});

test("a broken forward pass is told apart from a mask that leaves nothing", () => {
  const chain = Chain.of(samplerConfig([]));
  const kindOf = (row: Float32Array, mask: Uint32Array) => {
    try {
      chain.pick(row, { mask, draw: 0, ...nothing });
    } catch (error) {
      return error instanceof SamplingError && error.kind;
    }
    return undefined;
  };
  const low = Number.NEGATIVE_INFINITY;
  assert.equal(kindOf(Float32Array.of(1, Number.NaN, 0, 0), Uint32Array.of(1)), "broken_logits");
  assert.equal(kindOf(Float32Array.of(1, 2, Number.POSITIVE_INFINITY, 0), Uint32Array.of(1)), "broken_logits");
  assert.equal(kindOf(Float32Array.of(low, low, low, low), ALL), "broken_logits");
  assert.equal(kindOf(Float32Array.of(low, 1, 1, 1), Uint32Array.of(1)), "nothing_left");
});

test("a draw outside of [0, 1) is refused", () => {
  const chain = Chain.of(samplerConfig([]));
  for (const draw of [1, -0.1, Number.NaN]) {
    assert.throws(() => chain.pick(Float32Array.of(1), { mask: Uint32Array.of(1), draw, ...nothing }), RangeError);
  }
});

test("on long rows, ties included, the same tokens are kept as by sorting all of them", () => {
  const width = 3000;
  const mask = new Uint32Array(Math.ceil(width / 32)).fill(0xffffffff);
  let state = 1;
  const random = () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
  for (const [spread, steps] of [
    [12, 1e9],
    [0.5, 1e9],
    [6, 8], // hardly any distinct values
    [0, 1], // one
  ] as const) {
    const row = Float32Array.from({ length: width }, () =>
      Math.fround((Math.round(random() * steps) / steps) * spread),
    );
    const order = [...row.keys()].sort((a, b) => (row[b] as number) - (row[a] as number) || a - b);
    const weights = order.map((id) => Math.exp(row[id] as number));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const entropy = weights.reduce((sum, weight) => sum - (weight / total) * Math.log(weight / total), 0);
    const byNearness = order
      .map((id, place) => ({ id, share: (weights[place] as number) / total }))
      .sort((a, b) => Math.abs(-Math.log(a.share) - entropy) - Math.abs(-Math.log(b.share) - entropy) || a.id - b.id);
    const until = (shares: readonly { id: number; share: number }[], p: number) => {
      const ids: number[] = [];
      for (let sum = 0, place = 0; sum < p; place++) {
        const { id, share } = shares[place] ?? assert.fail();
        ids.push(id);
        sum += share;
      }
      return ids;
    };
    const byShare = order.map((id, place) => ({ id, share: (weights[place] as number) / total }));
    const keptBy = (...stages: Parameters<typeof samplerConfig>[0]) => [
      ...Chain.of(samplerConfig(stages)).keep(row, { mask, ...nothing }).ids,
    ];
    const ascending = (ids: number[]) => ids.sort((a, b) => a - b);
    for (const k of [1, 7, 512, 2999]) assert.deepEqual(keptBy(topK(k)), ascending(order.slice(0, k)), `top ${k}`);
    for (const p of [0.0131, 0.3771, 0.9313]) {
      assert.deepEqual(keptBy(topP(p)), ascending(until(byShare, p)), `top-p ${p} of ${spread}`);
      assert.deepEqual(keptBy(typicalP(p)), ascending(until(byNearness, p)), `typical-p ${p} of ${spread}`);
    }
  }
});
