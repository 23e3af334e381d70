import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type CompileLimits,
  CompileLimitsSchema,
  type Grammar,
  GrammarSchema,
  type JsonOptions as JsonOptionsMessage,
  JsonOptionsSchema,
  JsonWhitespace,
  PropertyOrder,
  SchemaPolicy,
} from "./gen/constraintd/v1/grammar_pb.js";
import { documentBytes, type JsonDocument, type Text, utf8, utf8List } from "./json.js";
import { named } from "./names.js";

/** How the daemon reads JSON Schemas and spells their instances. */
export interface JsonOptions {
  /**
   * What becomes of keywords that can't be enforced: "strict" refuses the schema and names them, "approximate" takes it
   * without them; `ConstraintClient.compileGrammar` tells which. Default: "strict".
   */
  readonly policy?: "strict" | "approximate";
  /** White space between JSON's parts: a bounded amount anywhere, none, or one space after commas and colons. */
  readonly whitespace?: "bounded" | "compact" | "natural";
  /** Known `format` values assert nothing. Default: they are asserted. */
  readonly formatsAreAnnotations?: boolean;
}

/** The same, for `jsonSchema`. */
export interface JsonSchemaOptions extends JsonOptions {
  /** The order in which properties are written: "any", or that of the schema's text. Default: "any". */
  readonly propertyOrder?: "any" | "declared";
}

/** JSON that satisfies a JSON Schema. Throws TypeError for a document that JSON can't hold. */
export function jsonSchema(schema: JsonDocument, options: JsonSchemaOptions = {}): Grammar {
  return grammar({ case: "jsonSchema", value: documentBytes(schema) }, options);
}

/** Any JSON object. Of the options only `whitespace` changes anything. */
export function jsonObject(options: JsonOptions = {}): Grammar {
  return grammar({ case: "jsonObject", value: {} }, options);
}

/** A regular expression, by the rules of Python's `re`, that the whole text matches. */
export function regex(pattern: Text): Grammar {
  return grammar({ case: "regex", value: utf8(pattern) });
}

/** A Lark grammar in llguidance's dialect, with the start rule `start`. */
export function lark(source: Text): Grammar {
  return grammar({ case: "lark", value: utf8(source) });
}

/** A grammar in llama.cpp's language, token elements included; `root` is the rule to begin with. */
export function gbnf(text: Text, root: Text = "root"): Grammar {
  return grammar({ case: "gbnf", value: { text: utf8(text), root: utf8(root) } });
}

/** Exactly one of these texts. */
export function choice(texts: Iterable<Text>): Grammar {
  return grammar({ case: "choice", value: { texts: utf8List(texts, "choice") } });
}

/**
 * Free text with tagged parts: {"structures", "triggers"}, or {"type": "structural_tag", "format"}. The options are for
 * the schemas inside.
 */
export function structuralTag(document: JsonDocument, options: JsonOptions = {}): Grammar {
  return grammar({ case: "structuralTag", value: documentBytes(document) }, options);
}

/**
 * What trying a new grammar may take before it is refused; what is left out is the server's default. `stepMs` is for
 * its slowest step, a mask or an advance. Each is cut to the server's own cap, and times are rounded up.
 */
export function compileLimits(limits: {
  readonly timeMs?: number;
  readonly memoryBytes?: number;
  readonly stepMs?: number;
}): CompileLimits {
  return create(CompileLimitsSchema, {
    timeMs: Math.ceil(limits.timeMs ?? 0),
    memoryBytes: BigInt(limits.memoryBytes ?? 0),
    stepMs: Math.ceil(limits.stepMs ?? 0),
  });
}

/** The options as a message; undefined where all are the daemon's defaults. */
export function jsonOptions(options: JsonSchemaOptions): JsonOptionsMessage | undefined {
  const { policy = "strict", whitespace = "bounded", formatsAreAnnotations = false, propertyOrder = "any" } = options;
  const message = create(JsonOptionsSchema, {
    policy: policy === "strict" ? SchemaPolicy.UNSPECIFIED : named(SchemaPolicy, policy, "policy"),
    whitespace: whitespace === "bounded" ? JsonWhitespace.UNSPECIFIED : named(JsonWhitespace, whitespace, "whitespace"),
    formatsAreAnnotations,
    propertyOrder:
      propertyOrder === "any" ? PropertyOrder.UNSPECIFIED : named(PropertyOrder, propertyOrder, "propertyOrder"),
  });
  // Left out rather than sent empty, so that the same grammar has the same bytes from every client.
  return message.policy || message.whitespace || message.propertyOrder || formatsAreAnnotations ? message : undefined;
}

function grammar(source: MessageInitShape<typeof GrammarSchema>["source"], options: JsonSchemaOptions = {}): Grammar {
  const message = create(GrammarSchema, source ? { source } : {});
  const given = jsonOptions(options);
  if (given) message.jsonOptions = given;
  return message;
}
