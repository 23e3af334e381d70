package constraintd

import (
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// IDRange is the token ids from First up to, not including, End.
type IDRange struct{ First, End uint32 }

// AllowedTokens is only these tokens, and the end.
func AllowedTokens(ids ...uint32) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_Allowed{Allowed: &pb.TokenIds{Ids: ids}}})
}

// AllowList is one of these token sequences; an empty one is the empty text.
func AllowList(sequences ...[]uint32) Constraint {
	list := &pb.AllowList{}
	for _, ids := range sequences {
		list.Sequences = append(list.Sequences, &pb.TokenIds{Ids: ids})
	}
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_AllowList{AllowList: list}})
}

// TokenSequence is a beginning of these tokens; what follows is free.
func TokenSequence(ids ...uint32) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_Sequence{Sequence: &pb.TokenIds{Ids: ids}}})
}

// TokensAtLeast allows no end before this many tokens, unless nothing else is legal.
func TokensAtLeast(least uint32) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_Length{Length: &pb.Length{Min: least}}})
}

// TokensBetween is that, and finishes the session with LENGTH after most tokens.
func TokensBetween(least, most uint32) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_Length{Length: &pb.Length{Min: least, Max: &most}}})
}

// DenyRanges is none of the tokens of these ranges.
func DenyRanges(ranges ...IDRange) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_DenyRanges{DenyRanges: idRanges(ranges)}})
}

// BannedSpecials is none of these special tokens; those that end a generation can't be banned.
func BannedSpecials(ids ...uint32) Constraint {
	return tokenRule(&pb.TokenRule{Rule: &pb.TokenRule_BannedSpecials{BannedSpecials: &pb.TokenIds{Ids: ids}}})
}

func tokenRule(rule *pb.TokenRule) Constraint {
	return composed{&pb.Constraint{Kind: &pb.Constraint_TokenRule{TokenRule: rule}}}
}

func idRanges(ranges []IDRange) *pb.IdRanges {
	message := &pb.IdRanges{}
	for _, each := range ranges {
		message.Ranges = append(message.Ranges, &pb.IdRange{First: each.First, End: each.End})
	}
	return message
}
