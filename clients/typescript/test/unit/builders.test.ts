import assert from "node:assert/strict";
import { test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { chatPrompt } from "../../src/chat.js";
import { constraintMessage } from "../../src/constraints.js";
import { generateRequest } from "../../src/generation_events.js";
import {
  allOf,
  allowedTokens,
  type Constraint,
  ConstraintSchema,
  choice,
  compiled,
  type Grammar,
  GrammarSchema,
  gbnf,
  jsonObject,
  jsonSchema,
  lazy,
  regex,
  SamplerConfigSchema,
  samplerConfig,
  samplerPreset,
  structuralTag,
  temperature,
  tokenLength,
  toolCalls,
  triggers,
  unconstrained,
} from "../../src/index.js";

const base64 = (text: string) => Buffer.from(text).toString("base64");
const json = (grammar: Grammar) => toJson(GrammarSchema, grammar);
const constraintJson = (constraint: Constraint) => toJson(ConstraintSchema, constraint);

test("a schema's members keep their order, and its options go only where they are not the default", () => {
  assert.deepEqual(json(jsonSchema({ type: "object", b: 1, a: 2 })), {
    jsonSchema: base64('{"type":"object","b":1,"a":2}'),
  });
  assert.deepEqual(json(jsonSchema("true", { policy: "approximate", propertyOrder: "declared" })), {
    jsonSchema: base64("true"),
    jsonOptions: { policy: "SCHEMA_POLICY_APPROXIMATE", propertyOrder: "PROPERTY_ORDER_DECLARED" },
  });
  assert.deepEqual(json(jsonObject({ whitespace: "compact" })), {
    jsonObject: {},
    jsonOptions: { whitespace: "JSON_WHITESPACE_COMPACT" },
  });
});

test("an unknown option is refused, and the known ones are named", () => {
  assert.throws(() => jsonSchema({}, { policy: "lax" as "strict" }), /policy is "lax"; expected one of strict, approx/);
  assert.throws(() => jsonSchema({}, { whitespace: "unspecified" as "compact" }), /whitespace is "unspecified"/);
  assert.throws(() => samplerPreset("claude" as "openai", {}), /expected one of openai, hugging_face, llama_cpp/);
});

test("what JSON would leave out or change is refused", () => {
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, undefined, () => 1]) {
    assert.throws(() => jsonSchema({ properties: { a: { const: wrong } } }), /JSON can't hold .* at "const"/);
  }
  assert.throws(() => jsonSchema({ a: 1n }), TypeError);
});

test("half of a surrogate pair is refused, a whole one is not", () => {
  assert.throws(() => regex("\ud83d"), /surrogate pair/);
  assert.deepEqual(json(regex("\u{1f600}")), { regex: base64("\u{1f600}") });
});

test("one text in place of a list of texts is refused", () => {
  assert.throws(() => choice("abc"), /choice takes a list of texts/);
  assert.throws(() => samplerConfig([], { stopStrings: "end" as unknown as string[] }), /stopStrings takes a list/);
  assert.throws(() => regex(/a/ as unknown as string), /not RegExp/);
});

test("every other kind", () => {
  assert.deepEqual(json(gbnf('root ::= "a"')), { gbnf: { text: base64('root ::= "a"'), root: base64("root") } });
  assert.deepEqual(json(choice(["a", "b"])), { choice: { texts: [base64("a"), base64("b")] } });
  assert.deepEqual(json(structuralTag("{}")), { structuralTag: base64("{}") });
  assert.deepEqual(constraintJson(unconstrained()), { unconstrained: {} });
  assert.deepEqual(constraintJson(compiled("ab")), { grammarId: "ab" });
  assert.deepEqual(constraintJson(allOf(regex("a"), tokenLength({ max: 3 }), allowedTokens([1, 2]))), {
    allOf: {
      constraints: [
        { grammar: { regex: base64("a") } },
        { tokenRule: { length: { max: 3 } } },
        { tokenRule: { allowed: { ids: [1, 2] } } },
      ],
    },
  });
  const asleep = lazy(regex("a"), [triggers.word("<t>", { exclusive: true }), triggers.token(0)], { rearm: true });
  assert.deepEqual(constraintJson(asleep), {
    lazy: {
      grammar: { regex: base64("a") },
      triggers: [{ word: base64("<t>"), exclusive: true }, { token: 0 }],
      rearm: true,
    },
  });
});

test("tool calls need exactly one way to write them, and a name is a choice of that function", () => {
  const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
  assert.throws(() => toolCalls(tools, {}), /either a format or a template/);
  assert.throws(() => toolCalls(tools, { format: "hermes", template: { begin: "<" } }), TypeError);
  assert.deepEqual(constraintJson(toolCalls(tools, { format: "llama3_json", choice: "f", single: true })), {
    toolCalls: {
      tools: base64(JSON.stringify(tools)),
      toolChoice: base64('{"type":"function","function":{"name":"f"}}'),
      format: "TOOL_CALL_FORMAT_LLAMA3_JSON",
      single: true,
    },
  });
});

test("a missing constraint is refused: it has to be said that there is none", () => {
  assert.throws(() => constraintMessage(undefined as unknown as Grammar), /say unconstrained\(\)/);
  assert.throws(() => constraintMessage("[a-z]" as unknown as Grammar), TypeError);
});

test("an optional number of the sampler is there or not, and 0 is there", () => {
  assert.deepEqual(
    toJson(SamplerConfigSchema, samplerConfig([temperature(0.5)], { maxTokens: 0, seed: 2n ** 64n - 1n })),
    {
      stages: [{ temperature: { temperature: 0.5 } }],
      maxTokens: 0,
      seed: "18446744073709551615",
    },
  );
  assert.deepEqual(toJson(SamplerConfigSchema, samplerConfig([])), {});
});

test("a chat's messages are taken as OpenAI has them; what would silently be lost is refused", () => {
  const prompt = chatPrompt(
    [
      { role: "assistant", content: null, tool_calls: [{ id: "1", name: "f", arguments: "{}" }] },
      { role: "tool", tool_call_id: "1", name: "f", content: "4" },
    ],
    undefined,
  );
  assert.equal(
    Buffer.from(prompt.messages[0]?.toolCalls ?? []).toString(),
    '[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]',
  );
  assert.equal(Buffer.from(prompt.messages[1]?.toolCallId ?? []).toString(), "1");
  assert.throws(() => chatPrompt([{ role: "user", text: "hi" } as never], undefined), /message 0 has "text"/);
  assert.throws(() => chatPrompt([{ content: "hi" } as never], undefined), /message 0 has no role/);
});

test("a prompt is text, messages or tokens, not a mixture", () => {
  const constraint = unconstrained();
  const kindOf = (prompt: unknown) => generateRequest(prompt as string, { constraint }).prompt.case;
  assert.deepEqual(["", [1, 2], Uint32Array.of(3), [], [{ role: "user" }]].map(kindOf), [
    ...["text", "tokens", "tokens", "tokens", "chat"],
  ]);
  assert.throws(() => kindOf([{ role: "user" }, 1]), /not a mixture/);
  assert.throws(() => generateRequest("hi", { constraint, tools: [] }), /tools are for a chat/);
});

test("a resumable generation has its session id from this side", () => {
  const constraint = unconstrained();
  assert.equal(generateRequest("", { constraint }).sessionId, undefined);
  assert.equal(generateRequest("", { constraint, resumable: true }).sessionId?.length, 16);
});
