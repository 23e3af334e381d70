import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Grammar } from "./gen/constraintd/v1/grammar_pb.js";
import {
  type Constraint,
  ConstraintSchema,
  type ReasoningEnd,
  ReasoningEndSchema,
  type Trigger,
} from "./gen/constraintd/v1/session_pb.js";
import { type Text, utf8, utf8List } from "./json.js";

/** What a session's text must satisfy: a constraint, or a grammar alone. */
export type ConstraintLike = Constraint | Grammar;

/** No constraint. It has to be said: leaving a constraint out is an error. */
export function unconstrained(): Constraint {
  return constraintOf({ case: "unconstrained", value: {} });
}

/** A grammar that was compiled for the session's vocabulary, by the id that `compileGrammar` gave. */
export function compiled(grammarId: string): Constraint {
  return constraintOf({ case: "grammarId", value: grammarId });
}

/**
 * A grammar, or the id of a compiled one, that sleeps until one of the triggers wakes it; see `triggers`. While it
 * sleeps the text is free and may end. With `rearm` it sleeps again where it is exhausted.
 */
export function lazy(
  grammar: Grammar | string,
  triggers: readonly Trigger[],
  { rearm = false }: { readonly rearm?: boolean } = {},
): Constraint {
  return constraintOf({
    case: "lazy",
    value: {
      source: typeof grammar === "string" ? { case: "grammarId", value: grammar } : { case: "grammar", value: grammar },
      triggers: [...triggers],
      rearm,
    },
  });
}

/** All of these at once: a token is legal where each of them allows it. */
export function allOf(...constraints: readonly ConstraintLike[]): Constraint {
  return constraintOf({ case: "allOf", value: { constraints: constraints.map(constraintMessage) } });
}

/**
 * Where the model's reasoning ends: after any of the `texts`, such as "</think>", or of the `tokens`. Until then every
 * constraint sleeps. With `begin`, such as "<think>", a prompt reasons only if its last `begin` has no end behind it;
 * without it, until an end stands somewhere in the prompt or in what is generated.
 */
export function reasoningEnd(end: {
  readonly texts?: readonly Text[];
  readonly tokens?: readonly number[];
  readonly begin?: Text;
}): ReasoningEnd {
  return create(ReasoningEndSchema, {
    texts: utf8List(end.texts ?? [], "texts"),
    tokens: [...(end.tokens ?? [])],
    begin: utf8(end.begin ?? ""),
  });
}

/** The constraint as the protocol has it. Throws TypeError for anything else. */
export function constraintMessage(what: ConstraintLike): Constraint {
  switch (what?.$typeName) {
    case "constraintd.v1.Constraint":
      return what;
    case "constraintd.v1.Grammar":
      return constraintOf({ case: "grammar", value: what });
    default:
      throw new TypeError(
        "a constraint is what jsonSchema, regex, allOf and their like give; for none at all, say unconstrained()",
      );
  }
}

/** The constraint of one kind. */
export function constraintOf(kind: NonNullable<MessageInitShape<typeof ConstraintSchema>["kind"]>): Constraint {
  return create(ConstraintSchema, { kind });
}
