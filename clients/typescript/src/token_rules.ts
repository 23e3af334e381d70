import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { constraintOf } from "./constraints.js";
import { type Constraint, LengthSchema, type TokenRuleSchema } from "./gen/constraintd/v1/session_pb.js";

/** Only these tokens, and the end. */
export function allowedTokens(ids: Iterable<number>): Constraint {
  return rule({ case: "allowed", value: { ids: [...ids] } });
}

/** The text is one of these token sequences; an empty one is the empty text. */
export function allowList(sequences: Iterable<Iterable<number>>): Constraint {
  return rule({ case: "allowList", value: { sequences: Array.from(sequences, (ids) => ({ ids: [...ids] })) } });
}

/** The text begins with these tokens; what follows is free. */
export function tokenSequence(ids: Iterable<number>): Constraint {
  return rule({ case: "sequence", value: { ids: [...ids] } });
}

/** No end before `min` tokens, unless nothing else is legal; LENGTH after `max`. */
export function tokenLength({ min = 0, max }: { readonly min?: number; readonly max?: number }): Constraint {
  return rule({ case: "length", value: create(LengthSchema, max === undefined ? { min } : { min, max }) });
}

/** None of the tokens from `first` up to, not including, `end`, for each [first, end]. */
export function denyRanges(ranges: Iterable<readonly [first: number, end: number]>): Constraint {
  return rule({ case: "denyRanges", value: { ranges: Array.from(ranges, ([first, end]) => ({ first, end })) } });
}

/** None of these special tokens; those that end a generation can't be banned. */
export function bannedSpecials(ids: Iterable<number>): Constraint {
  return rule({ case: "bannedSpecials", value: { ids: [...ids] } });
}

function rule(kind: NonNullable<MessageInitShape<typeof TokenRuleSchema>["rule"]>): Constraint {
  return constraintOf({ case: "tokenRule", value: { rule: kind } });
}
