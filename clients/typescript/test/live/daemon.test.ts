import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  allOf,
  allowedIds,
  allowedTokens,
  allowList,
  bannedSpecials,
  type Cancelled,
  ConstraintClient,
  type ConstraintdError,
  type ConstraintLike,
  choice,
  compiled,
  compileLimits,
  DeadlineExceeded,
  denyRanges,
  gbnf,
  jsonObject,
  jsonSchema,
  lark,
  lazy,
  reasoningEnd,
  regex,
  retrying,
  type SamplerConfig,
  samplerConfig,
  spell,
  structuralTag,
  tokenLength,
  tokenSequence,
  toolCalls,
  topK,
  triggers,
  Unavailable,
  unconstrained,
  type VocabularyInfo,
} from "../../src/index.js";
import { BYTE_VOCABULARY } from "../../toy/byte_vocabulary.js";
import { Served } from "../processes.js";
import { because } from "../refusals.js";

const EOG = 256;
const [A, B, C] = ["a", "b", "c"].map((letter) => letter.charCodeAt(0)) as [number, number, number];

describe("a live daemon", () => {
  let daemon: Served;
  let client: ConstraintClient;
  let vocabulary: VocabularyInfo;

  before(async () => {
    daemon = await Served.daemon();
    client = new ConstraintClient(daemon.address);
    vocabulary = await client.registerTokenTable(BYTE_VOCABULARY);
  });
  after(async () => {
    client.close();
    await daemon.clear();
  });

  const open = (constraint: ConstraintLike, more: { sampler?: SamplerConfig; promptTokens?: number[] } = {}) =>
    client.openSession({ vocabularyId: vocabulary.vocabularyId, constraint, ...more });

  test("the byte vocabulary has the id that every client gives it", async () => {
    assert.equal(vocabulary.logitsWidth, 300);
    assert.deepEqual(vocabulary.eogIds, [256, 258]);
    assert.deepEqual(await client.registerTokenTable(BYTE_VOCABULARY), vocabulary);
    const table = await client.tokenTable(vocabulary.vocabularyId);
    assert.equal(Buffer.from(spell(table, [A, 261, EOG])).toString(), "aab");
    assert.deepEqual([...table.special], [...(BYTE_VOCABULARY.special ?? [])]);
  });

  test("a Unix socket is reached in plaintext, by a client that encrypts elsewhere, too", async () => {
    using encrypting = new ConstraintClient([daemon.address, "example.org:50051"], { tls: {}, token: "unneeded" });
    assert.match((await encrypting.serverInfo()).version, /^\d/);
  });

  test("it says what it is", async () => {
    const info = await client.serverInfo();
    assert.match(info.version, /^\d+\.\d+\.\d+/);
    assert.ok((info.limits?.maxBatchSteps ?? 0) > 1);
  });

  test("a compiled grammar has the same id again, and a report for each keyword", async () => {
    const schema = jsonSchema({ type: "object", properties: { n: { type: "integer" } }, title: "t", required: ["n"] });
    const first = await client.compileGrammar(vocabulary.vocabularyId, schema, {
      limits: compileLimits({ timeMs: 9000.5 }),
    });
    const again = await client.compileGrammar(vocabulary.vocabularyId, schema);
    assert.equal(again.grammarId, first.grammarId);
    assert.deepEqual([first.cached, again.cached, again.compileUs], [false, true, 0]);
    const verdicts = Object.fromEntries(first.report.map(({ pointer, verdict }) => [pointer, verdict]));
    assert.equal(verdicts["/properties/n/type"], "NARROWED");
    assert.deepEqual([verdicts["/required"], verdicts["/title"]], ["ENFORCED", "ANNOTATION"]);
    assert.equal((await open(compiled(first.grammarId))).directive.kind, "mask");
  });

  test("every kind of constraint is taken, and allows what it should at the beginning", async () => {
    const allowed = async (constraint: ConstraintLike, more = {}) => {
      const { directive } = await open(constraint, more);
      assert.equal(directive.kind, "mask");
      return directive.kind === "mask" ? [...allowedIds(directive.mask)] : [];
    };
    const bytesOf = (text: string) => [...Buffer.from(text)];
    const isIn = (some: number[], all: number[]) => some.every((each) => all.includes(each));
    assert.deepEqual(await allowed(regex("[bc]")), [B, C]);
    assert.deepEqual(await allowed(choice(["b", "cc"])), [B, C]);
    assert.deepEqual(await allowed(gbnf('top ::= "c"', "top")), [C]);
    assert.deepEqual(await allowed(lark('start: "b" | "c"')), [B, C]);
    assert.deepEqual(await allowed(jsonSchema({ const: 12 }, { whitespace: "compact" })), bytesOf("1"));
    assert.deepEqual(await allowed(jsonObject({ whitespace: "compact" })), bytesOf("{"));
    assert.deepEqual(await allowed(allowedTokens([B, C])), [B, C, 256, 258]);
    assert.deepEqual(await allowed(allowList([[B], [C, C]])), [B, C]);
    assert.deepEqual(await allowed(tokenSequence([C, B])), [C]);
    assert.deepEqual(await allowed(allOf(regex("[ab]"), denyRanges([[A, B]]), tokenLength({ max: 5 }))), [B, 262]);
    assert.ok(!(await allowed(bannedSpecials([257]))).includes(257));
    assert.ok(isIn([...Array(256).keys()], await allowed(unconstrained())));
    const sleeping = await allowed(
      lazy(regex("<b>c"), [triggers.word("<b>"), triggers.pattern("x(y)", { atStart: true })]),
    );
    assert.ok(isIn([A, B, EOG], sleeping));
    const tag = { begin: "<f>", schema: { const: 1 }, end: "</f>" };
    assert.ok(isIn([A, B], await allowed(structuralTag({ structures: [tag], triggers: ["<f>"] }))));
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
    assert.deepEqual(await allowed(toolCalls(tools, { format: "llama3_json", choice: "required" })), bytesOf("{"));
    const template = { begin: "[", end: "]" };
    assert.ok(isIn(bytesOf("["), await allowed(toolCalls(tools, { template, choice: "f", whitespace: "compact" }))));
    assert.ok(isIn([A, B], await allowed(regex("c"), { reasoningEnd: reasoningEnd({ texts: ["</think>"] }) })));
  });

  test("a refused grammar says where it is wrong", async () => {
    await assert.rejects(open(regex("[a-")), (error: ConstraintdError) => {
      because("INVALID_GRAMMAR")(error);
      assert.match(error.location ?? "", /^1:\d+$/);
      return true;
    });
    await assert.rejects(open(jsonSchema('{"type":')), because("INVALID_GRAMMAR"));
    await assert.rejects(open(regex(Uint8Array.of(0xff))), because("INVALID_FIELD"));
    await assert.rejects(open(compiled("f".repeat(64))), because("UNKNOWN_GRAMMAR"));
  });

  test("a field out of range is named", async () => {
    await assert.rejects(open(unconstrained(), { sampler: samplerConfig([topK(0)]) }), (error: ConstraintdError) => {
      because("INVALID_FIELD")(error);
      assert.match(error.field ?? "", /stages\[0\]/);
      return true;
    });
    await assert.rejects(
      client.openSession({ vocabularyId: "0".repeat(64), constraint: unconstrained() }),
      because("UNKNOWN_VOCABULARY"),
    );
  });

  test("a number that does not fit its field is refused before it is sent", async () => {
    await assert.rejects(open(allowedTokens([-1])), /uint32/);
    await assert.rejects(open(unconstrained(), { promptTokens: [2 ** 32] }), /uint32/);
    await assert.rejects(open(unconstrained(), { promptTokens: [1.5] }), /uint32/);
  });

  test("a message past the transport's limit is an error of that call alone", async () => {
    const large = regex(Buffer.alloc(80 << 20, "a"));
    await assert.rejects(open(large), (error: ConstraintdError) => error.code === 8 && error.reason === "");
    await assert.rejects(open(regex(Buffer.alloc(2 << 20, "a"))), because("TOO_LARGE"));
    assert.equal((await open(regex("a"))).directive.kind, "mask");
  });

  test("a call that is cancelled or comes too late says so", async () => {
    const controller = new AbortController();
    const asked = client.serverInfo({ signal: controller.signal });
    controller.abort("enough");
    await assert.rejects(asked, (error: Cancelled) => error.cause === "enough" && !error.retryable);
    await assert.rejects(client.serverInfo({ signal: AbortSignal.abort() }), { name: "Cancelled" });
    await assert.rejects(client.serverInfo({ timeoutMs: 0 }), DeadlineExceeded);
  });

  test("nobody there is Unavailable, and trying again finds who comes back", async () => {
    const mortal = await Served.daemon();
    await mortal.kill();
    const lonely = new ConstraintClient(mortal.address);
    await assert.rejects(lonely.serverInfo(), Unavailable);
    const found = retrying(() => lonely.serverInfo());
    await mortal.start();
    assert.match((await found).version, /^\d/);
    lonely.close();
    await mortal.kill();
    using both = new ConstraintClient([mortal.address, daemon.address]);
    assert.match((await retrying(() => both.serverInfo())).version, /^\d/);
    assert.equal(both.target, daemon.address);
    await mortal.clear();
  });
});
