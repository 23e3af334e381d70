package constraintd

import (
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// Constraint is what a session's text must satisfy: a [Grammar], a [GrammarID], what the functions of this package
// compose, or [Unconstrained]. There is no default; nil is refused.
type Constraint interface {
	constraint() *pb.Constraint
}

// GrammarID names a grammar that [Daemon.CompileGrammar] compiled for the session's vocabulary.
type GrammarID string

func (id GrammarID) constraint() *pb.Constraint {
	return &pb.Constraint{Kind: &pb.Constraint_GrammarId{GrammarId: string(id)}}
}

type composed struct{ message *pb.Constraint }

func (c composed) constraint() *pb.Constraint { return c.message }

// ConstraintOf is the constraint that the protocol's message says.
func ConstraintOf(message *pb.Constraint) Constraint { return composed{message} }

// Unconstrained allows every token of the vocabulary at every position.
func Unconstrained() Constraint {
	return composed{&pb.Constraint{Kind: &pb.Constraint_Unconstrained{Unconstrained: &pb.Unconstrained{}}}}
}

// AllOf is all of these at once: a token is legal where each of them allows it.
func AllOf(constraints ...Constraint) Constraint {
	all := &pb.AllOf{}
	for _, each := range constraints {
		all.Constraints = append(all.Constraints, constraintMessage(each))
	}
	return composed{&pb.Constraint{Kind: &pb.Constraint_AllOf{AllOf: all}}}
}

// Lazy is a grammar that sleeps until one of the triggers wakes it; while it sleeps the text is free and may end.
func Lazy(grammar Grammar, triggers ...Trigger) Constraint {
	return lazy(&pb.LazyGrammar{Source: &pb.LazyGrammar_Grammar{Grammar: grammar.message}}, triggers)
}

// LazyAgain is the same, and sleeps again where the grammar is exhausted, for another call in the same text.
func LazyAgain(grammar Grammar, triggers ...Trigger) Constraint {
	source := &pb.LazyGrammar_Grammar{Grammar: grammar.message}
	return lazy(&pb.LazyGrammar{Source: source, Rearm: true}, triggers)
}

// LazyID is [Lazy] for a grammar that was compiled already.
func LazyID(id GrammarID, triggers ...Trigger) Constraint {
	return lazy(&pb.LazyGrammar{Source: &pb.LazyGrammar_GrammarId{GrammarId: string(id)}}, triggers)
}

// LazyIDAgain is [LazyAgain] for a grammar that was compiled already.
func LazyIDAgain(id GrammarID, triggers ...Trigger) Constraint {
	source := &pb.LazyGrammar_GrammarId{GrammarId: string(id)}
	return lazy(&pb.LazyGrammar{Source: source, Rearm: true}, triggers)
}

func lazy(asleep *pb.LazyGrammar, triggers []Trigger) Constraint {
	for _, trigger := range triggers {
		asleep.Triggers = append(asleep.Triggers, trigger.message)
	}
	return composed{&pb.Constraint{Kind: &pb.Constraint_Lazy{Lazy: asleep}}}
}

// Trigger is what wakes a lazy grammar.
type Trigger struct{ message *pb.Trigger }

// TriggerWord is literal text. A word that is exactly the spelling of one special token is that token, nothing else.
func TriggerWord[T Text](word T) Trigger {
	return Trigger{&pb.Trigger{Kind: &pb.Trigger_Word{Word: []byte(word)}}}
}

// TriggerPattern is a regular expression (RE2) that some part of the text so far matches; the grammar is fed from its
// first non-empty group on, if it has groups.
func TriggerPattern[T Text](expression T) Trigger {
	return Trigger{&pb.Trigger{Kind: &pb.Trigger_Pattern{Pattern: []byte(expression)}}}
}

// TriggerPatternFull is a regular expression (RE2) that the whole text so far matches.
func TriggerPatternFull[T Text](expression T) Trigger {
	return Trigger{&pb.Trigger{Kind: &pb.Trigger_PatternFull{PatternFull: []byte(expression)}}}
}

// TriggerToken is a token, by its id alone.
func TriggerToken(id uint32) Trigger {
	return Trigger{&pb.Trigger{Kind: &pb.Trigger_Token{Token: id}}}
}

// AtStart is the same trigger, only at the very beginning of the text.
func (t Trigger) AtStart() Trigger {
	return Trigger{&pb.Trigger{Kind: t.message.GetKind(), AtStart: true, Exclusive: t.message.GetExclusive()}}
}

// Exclusive is the same trigger, which the grammar is not fed itself, only what comes after it.
func (t Trigger) Exclusive() Trigger {
	return Trigger{&pb.Trigger{Kind: t.message.GetKind(), AtStart: t.message.GetAtStart(), Exclusive: true}}
}

// ReasoningEnd says where a model's reasoning ends. Until then every constraint of the session sleeps.
type ReasoningEnd struct {
	// Texts end it, such as "</think>"; the spelling of a special token is that token.
	Texts []string
	// Tokens end it.
	Tokens []uint32
	// Begin is a text such as "<think>". With it, a prompt reasons only if its last Begin has no end behind it; without
	// it, until an end stands somewhere in the prompt or in what is generated.
	Begin string
}

func (end *ReasoningEnd) message() *pb.ReasoningEnd {
	if end == nil {
		return nil
	}
	return &pb.ReasoningEnd{Texts: bytesOf(end.Texts), Tokens: end.Tokens, Begin: []byte(end.Begin)}
}

func reasoningEndOf(message *pb.ReasoningEnd) *ReasoningEnd {
	if message == nil {
		return nil
	}
	end := &ReasoningEnd{Tokens: message.GetTokens(), Begin: string(message.GetBegin())}
	for _, text := range message.GetTexts() {
		end.Texts = append(end.Texts, string(text))
	}
	return end
}

// constraintMessage of nil is an empty message, which the servers refuse by name.
func constraintMessage(what Constraint) *pb.Constraint {
	if what == nil {
		return &pb.Constraint{}
	}
	return what.constraint()
}
