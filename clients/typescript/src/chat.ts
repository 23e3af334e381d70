import { create } from "@bufbuild/protobuf";
import {
  type ChatMessage as ChatMessageMessage,
  ChatMessageSchema,
  type ChatPrompt,
  ChatPromptSchema,
} from "./gen/constraintd/runner/v1/generation_service_pb.js";
import { documentBytes, type Text, utf8 } from "./json.js";
import type { ToolCall } from "./tools.js";

/** A call as OpenAI's messages have it. */
export interface OpenAiToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: unknown };
}

/** One message of a chat, with members as OpenAI has them; one that is null is one left out. */
export interface ChatMessage {
  /** Who speaks, such as "system", "user", "assistant" or "tool". */
  readonly role: Text;
  /** What was said; may be missing where the message is calls alone. */
  readonly content?: Text | null;
  /** Of an assistant's message: the calls that it made, as `ToolAnswer.calls` or OpenAI has them, or their JSON text. */
  readonly tool_calls?: readonly (ToolCall | OpenAiToolCall)[] | Text | null;
  /** Of a tool's message: the id of the call that it answers. */
  readonly tool_call_id?: Text | null;
  /** The speaker's name, or that of the function whose result this is. */
  readonly name?: Text | null;
}

/** OpenAI-style tools: a list of {"type": "function", "function": {...}}, or its JSON text. */
export type Tools = Text | readonly unknown[];

const MEMBERS = ["role", "content", "tool_calls", "tool_call_id", "name"];

/** The messages and, unless undefined, the tools. Throws TypeError for a message that can't be sent. */
export function chatPrompt(messages: readonly ChatMessage[], tools: Tools | undefined): ChatPrompt {
  const prompt = create(ChatPromptSchema, { messages: messages.map(messageOf) });
  if (tools !== undefined) prompt.tools = documentBytes(tools);
  return prompt;
}

function messageOf(message: ChatMessage, index: number): ChatMessageMessage {
  for (const [name, value] of Object.entries(message)) {
    // A member that would silently not be sent is a mistake; OpenAI's own dumps have nulls for what is not there.
    if (!MEMBERS.includes(name) && value !== null && value !== undefined) {
      throw new TypeError(`message ${index} has ${JSON.stringify(name)}, which is none of ${MEMBERS.join(", ")}`);
    }
  }
  if (!message.role) throw new TypeError(`message ${index} has no role`);
  const text = (value: Text | null | undefined) => utf8(value ?? "");
  return create(ChatMessageSchema, {
    role: utf8(message.role),
    content: text(message.content),
    toolCalls: callsBytes(message.tool_calls ?? ""),
    toolCallId: text(message.tool_call_id),
    name: text(message.name),
  });
}

function callsBytes(calls: readonly (ToolCall | OpenAiToolCall)[] | Text): Uint8Array {
  if (typeof calls === "string" || calls instanceof Uint8Array) return utf8(calls);
  return calls.length === 0 ? new Uint8Array() : documentBytes(calls.map(openAiForm));
}

function openAiForm(call: ToolCall | OpenAiToolCall): OpenAiToolCall {
  if ("function" in call) return call;
  return { id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } };
}
