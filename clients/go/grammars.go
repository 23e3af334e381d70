package constraintd

import (
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// Text is a text or document as the caller has it. It goes to the daemon byte by byte, which judges it.
type Text interface{ ~string | ~[]byte }

// JSONOptions say how JSON Schemas are read and their instances spelled; the zero value has the daemon's defaults.
type JSONOptions = pb.JsonOptions

// What a JSONOptions' fields may say.
const (
	// SchemaStrict refuses a schema that has keywords which can't be enforced. The default.
	SchemaStrict = pb.SchemaPolicy_SCHEMA_POLICY_STRICT
	// SchemaApproximate takes it without them; the compilation's report names them.
	SchemaApproximate = pb.SchemaPolicy_SCHEMA_POLICY_APPROXIMATE

	// WhitespaceBounded allows some white space anywhere between parts. The default.
	WhitespaceBounded = pb.JsonWhitespace_JSON_WHITESPACE_BOUNDED
	// WhitespaceCompact allows none.
	WhitespaceCompact = pb.JsonWhitespace_JSON_WHITESPACE_COMPACT
	// WhitespaceNatural is one space after each comma and colon.
	WhitespaceNatural = pb.JsonWhitespace_JSON_WHITESPACE_NATURAL

	// OrderAny allows an object's properties in any order. The default.
	OrderAny = pb.PropertyOrder_PROPERTY_ORDER_ANY
	// OrderDeclared is that of the schema's text.
	OrderDeclared = pb.PropertyOrder_PROPERTY_ORDER_DECLARED
)

// Grammar is a grammar's source: a [Constraint] by itself, and what [Daemon.CompileGrammar] takes.
type Grammar struct{ message *pb.Grammar }

func (g Grammar) constraint() *pb.Constraint {
	return &pb.Constraint{Kind: &pb.Constraint_Grammar{Grammar: g.message}}
}

// GrammarOf is the grammar that the protocol's message says.
func GrammarOf(message *pb.Grammar) Grammar { return Grammar{message} }

// JSONSchema is JSON that satisfies a JSON Schema, given as its text: the order of its members is meaning.
func JSONSchema[T Text](schema T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_JsonSchema{JsonSchema: []byte(schema)}}}
}

// JSONObject is any JSON object.
func JSONObject() Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_JsonObject{JsonObject: &pb.JsonObject{}}}}
}

// Regex is a regular expression that the whole text matches.
func Regex[T Text](expression T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_Regex{Regex: []byte(expression)}}}
}

// Lark is a Lark grammar in llguidance's dialect; it begins with the rule start.
func Lark[T Text](grammar T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_Lark{Lark: []byte(grammar)}}}
}

// GBNF is a grammar in llama.cpp's language; it begins with the rule root.
func GBNF[T Text](grammar T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_Gbnf{Gbnf: &pb.Gbnf{Text: []byte(grammar)}}}}
}

// GBNFFrom is the same, with another rule to begin with.
func GBNFFrom[T Text](grammar T, root string) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_Gbnf{Gbnf: &pb.Gbnf{Text: []byte(grammar), Root: []byte(root)}}}}
}

// StructuralTag is free text with tagged parts: a JSON document, {"structures", "triggers"} or {"type":
// "structural_tag", "format"}.
func StructuralTag[T Text](document T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_StructuralTag{StructuralTag: []byte(document)}}}
}

// Choice is exactly one of these texts.
func Choice[T Text](texts ...T) Grammar {
	return Grammar{&pb.Grammar{Source: &pb.Grammar_Choice{Choice: &pb.Choice{Texts: bytesOf(texts)}}}}
}

// WithJSONOptions is the same grammar with other options, for JSON Schemas, JSON objects, and the schemas inside of a
// structural tag.
func (g Grammar) WithJSONOptions(options *JSONOptions) Grammar {
	return Grammar{&pb.Grammar{Source: g.message.GetSource(), JsonOptions: options}}
}

func bytesOf[T Text](texts []T) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}
