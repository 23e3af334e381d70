import { create } from "@bufbuild/protobuf";
import { constraintOf } from "./constraints.js";
import type { ToolAnswer as ToolAnswerMessage } from "./gen/constraintd/runner/v1/generation_service_pb.js";
import { type Constraint, ToolCallFormat, ToolCallsSchema } from "./gen/constraintd/v1/session_pb.js";
import { type JsonOptions, jsonOptions } from "./grammars.js";
import { documentBytes, type JsonDocument, type Text, utf8 } from "./json.js";
import { named } from "./names.js";

/** A wire format of one's own: a JSON object between two markers. */
export interface CallTemplate {
  /** Before each call. A marker that is exactly one special token is that token. */
  readonly begin: Text;
  /** After each call. Default: nothing. */
  readonly end?: Text;
  /** Member of the function's name. Default: "name". */
  readonly nameKey?: Text;
  /** Member of its arguments. Default: "arguments". */
  readonly argumentsKey?: Text;
  /** Between two calls. Default: nothing. */
  readonly separator?: Text;
}

/** How calls of tools are constrained, beside the options of `jsonSchema` for their arguments. */
export interface ToolCallOptions extends JsonOptions {
  /**
   * "auto" (free text that may have calls), "required" (calls alone), "none", the name of the one function to call, or
   * OpenAI's {"type": "function", "function": {"name": ...}}. Default: "auto".
   */
  readonly choice?: JsonDocument;
  /** How the model writes calls: Hermes and Qwen, Llama 3, Mistral 7B v0.3 and Nemo, Mistral Small 3.2 and later. */
  readonly format?: "hermes" | "llama3_json" | "mistral" | "mistral_args";
  /** A format of one's own, in place of `format`. */
  readonly template?: CallTemplate;
  /** At most one call. Default: several. */
  readonly single?: boolean;
}

/** One call of a tool. */
export interface ToolCall {
  /** Unique in the answer. */
  readonly id: string;
  /** The function's. */
  readonly name: string;
  /** A JSON object, as the model wrote it. */
  readonly arguments: string;
}

/** An answer taken apart. */
export interface ToolAnswer {
  /** Text outside of calls; special tokens stand in it by their spelling. */
  readonly content: string;
  /** In the order in which they were written. */
  readonly calls: readonly ToolCall[];
  /** A call that was cut off, from its beginning on; empty if all are whole. */
  readonly malformed: string;
}

/**
 * Calls of OpenAI-style `tools`: a list of {"type": "function", "function": {...}}, or its JSON text. Throws TypeError
 * if both or neither of `format` and `template` are given, and for an unknown name.
 */
export function toolCalls(tools: Text | readonly unknown[], options: ToolCallOptions): Constraint {
  const { choice = "auto", format, template, single = false } = options;
  if ((format === undefined) === (template === undefined)) {
    throw new TypeError("toolCalls takes either a format or a template: say how the model writes calls");
  }
  const given = jsonOptions(options);
  const message = create(ToolCallsSchema, {
    tools: documentBytes(tools),
    toolChoice: choiceBytes(choice),
    single,
    ...(given ? { jsonOptions: given } : {}),
    wireFormat: template
      ? {
          case: "template",
          value: {
            begin: utf8(template.begin),
            end: utf8(template.end ?? ""),
            nameKey: utf8(template.nameKey ?? ""),
            argumentsKey: utf8(template.argumentsKey ?? ""),
            separator: utf8(template.separator ?? ""),
          },
        }
      : { case: "format", value: named(ToolCallFormat, format ?? "", "format") as ToolCallFormat },
  });
  return constraintOf({ case: "toolCalls", value: message });
}

/** Translates a ToolAnswer. */
export function toolAnswerOf(message: ToolAnswerMessage): ToolAnswer {
  const calls = message.calls.map(({ id, name, arguments: given }) => ({ id, name, arguments: given }));
  return { content: message.content, calls, malformed: message.malformed };
}

function choiceBytes(choice: JsonDocument): Uint8Array {
  const isName = typeof choice === "string" && !["auto", "required", "none"].includes(choice);
  if (isName && !choice.trimStart().startsWith("{")) {
    return documentBytes({ type: "function", function: { name: choice } });
  }
  return documentBytes(choice);
}
