import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Trigger, TriggerSchema } from "./gen/constraintd/v1/session_pb.js";
import { type Text, utf8 } from "./json.js";

/** How a trigger counts. */
export interface TriggerOptions {
  /** Only at the very beginning of the text. Default: anywhere. */
  readonly atStart?: boolean;
  /** The grammar is fed what comes after the trigger, not the trigger itself. Default: from the trigger on. */
  readonly exclusive?: boolean;
}

/** Literal text. A word that is exactly the spelling of one special token is that token, and nothing else. */
export function word(text: Text, options: TriggerOptions = {}): Trigger {
  return trigger({ case: "word", value: utf8(text) }, options);
}

/**
 * A regular expression (RE2) that some part of the text so far matches. The grammar is fed from its first non-empty
 * group on, if it has groups.
 */
export function pattern(expression: Text, options: TriggerOptions = {}): Trigger {
  return trigger({ case: "pattern", value: utf8(expression) }, options);
}

/** A regular expression (RE2) that the whole text so far matches. */
export function patternFull(expression: Text, options: TriggerOptions = {}): Trigger {
  return trigger({ case: "patternFull", value: utf8(expression) }, options);
}

/** A token, by its id alone. */
export function token(tokenId: number, options: TriggerOptions = {}): Trigger {
  return trigger({ case: "token", value: tokenId }, options);
}

function trigger(
  kind: NonNullable<MessageInitShape<typeof TriggerSchema>["kind"]>,
  { atStart = false, exclusive = false }: TriggerOptions,
): Trigger {
  return create(TriggerSchema, { kind, atStart, exclusive });
}
