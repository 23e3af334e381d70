package constraintd_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/bytevocabulary"
)

func TestACompilationTellsWhatIsMadeOfEachKeyword(t *testing.T) {
	f := newFixture(t)
	schema := `{"type": "string", "title": "T", "contentEncoding": "base64", "pattern": "^a+$"}`
	compiled, err := f.CompileGrammar(t.Context(), f.vocabulary, constraintd.JSONSchema(schema), constraintd.CompileLimits{})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]constraintd.KeywordVerdict{}
	for _, keyword := range compiled.Report {
		verdicts[keyword.Pointer] = keyword.Verdict
	}
	if verdicts["/pattern"] != constraintd.VerdictEnforced || verdicts["/title"] != constraintd.VerdictAnnotation {
		t.Errorf("verdicts %v", verdicts)
	}
	again, err := f.CompileGrammar(t.Context(), f.vocabulary, constraintd.JSONSchema(schema), constraintd.CompileLimits{})
	if err != nil || again.ID != compiled.ID || !again.Cached {
		t.Errorf("compiled again: %+v, %v", again, err)
	}
	if allowed := f.open(t, compiled.ID, nil).Directive.Mask.IDs(); !slices.Equal(allowed, []uint32{'"'}) {
		t.Errorf("allowed %v", allowed)
	}
}

func TestBadConstraintsAreRefusedWithTheirPlace(t *testing.T) {
	f := newFixture(t, "--max-grammar-bytes", "4096")
	compile := func(grammar constraintd.Grammar) error {
		_, err := f.CompileGrammar(t.Context(), f.vocabulary, grammar, constraintd.CompileLimits{})
		return err
	}
	refusal := refused(t, compile(constraintd.JSONSchema(`{"properties": {"a": {"$ref": "#/$defs/none"}}}`)),
		constraintd.ReasonInvalidGrammar)
	if refusal.Location() != "/properties/a/$ref" || refusal.Code != codes.InvalidArgument {
		t.Errorf("location %q, code %s", refusal.Location(), refusal.Code)
	}
	refused(t, compile(constraintd.Regex("(")), constraintd.ReasonInvalidGrammar)
	refusal = refused(t, compile(constraintd.Regex([]byte{0xff, 0xfe})), constraintd.ReasonInvalidField)
	if refusal.Field() != "grammar.regex" {
		t.Errorf("field %q", refusal.Field())
	}
	refused(t, compile(constraintd.JSONSchema(`{"a": 1, "a": 2}`)), constraintd.ReasonInvalidGrammar)
	refusal = refused(t, compile(constraintd.Regex(strings.Repeat("a", 5000))), constraintd.ReasonTooLarge)
	if refusal.Metadata["limit"] != "4096" {
		t.Errorf("metadata %v", refusal.Metadata)
	}
	refused(t, compile(constraintd.GrammarOf(nil)), constraintd.ReasonInvalidField)
	_, err := f.OpenSession(t.Context(), constraintd.OpenRequest{VocabularyID: f.vocabulary})
	if field := refused(t, err, constraintd.ReasonInvalidField).Field(); field != "constraint" {
		t.Errorf("field %q", field)
	}
	_, err = f.OpenSession(t.Context(), constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraintd.GrammarID(strings.Repeat("0", 64)),
	})
	refused(t, err, constraintd.ReasonUnknownGrammar)
	_, err = f.OpenSession(t.Context(), constraintd.OpenRequest{VocabularyID: "\xff", Constraint: constraintd.Regex("a")})
	if err == nil || constraintd.IsRetryable(err) {
		t.Errorf("a vocabulary id that is no UTF-8: %v", err)
	}
	if _, err := f.Decode(t.Context(), "\xff", 32); err == nil || constraintd.IsRetryable(err) {
		t.Errorf("the same for a stream: %v", err)
	}
}

func TestEveryKindOfConstraintMasksAsItSays(t *testing.T) {
	f := newFixture(t)
	tools := `[{"type":"function","function":{"name":"f","parameters":{"type":"object","additionalProperties":false}}}]`
	compact := &constraintd.JSONOptions{Whitespace: constraintd.WhitespaceCompact}
	lazyID, err := f.CompileGrammar(t.Context(), f.vocabulary, constraintd.Regex("<<b>"), constraintd.CompileLimits{})
	if err != nil {
		t.Fatal(err)
	}
	const eog, eog2 = bytevocabulary.EOG, bytevocabulary.SecondEOG
	for name, each := range map[string]struct {
		constraint constraintd.Constraint
		before     string
		allowed    []uint32
	}{
		"json schema":      {constraintd.JSONSchema(`{"const": true}`).WithJSONOptions(compact), "", []uint32{'t'}},
		"json object":      {constraintd.JSONObject().WithJSONOptions(compact), "", []uint32{'{'}},
		"regex":            {constraintd.Regex("[xy]z"), "", []uint32{'x', 'y'}},
		"lark":             {constraintd.Lark(`start: "q"`), "", []uint32{'q'}},
		"gbnf":             {constraintd.GBNF(`root ::= "g" [0-1]`), "g", []uint32{'0', '1'}},
		"gbnf from a rule": {constraintd.GBNFFrom(`other ::= "o"`, "other"), "", []uint32{'o'}},
		"choice":           {constraintd.Choice("me", "my"), "m", []uint32{'e', 'y'}},
		"structural tag": {
			constraintd.StructuralTag(`{"type":"structural_tag","format":{"type":"const_string","value":"S"}}`), "",
			[]uint32{'S'},
		},
		"tools, required": {
			constraintd.ToolCalls(tools, constraintd.FormatHermes, constraintd.ToolCallOptions{
				Choice: constraintd.ToolsRequired,
			}), "<tool_", []uint32{'c'},
		},
		"tools, one by name, in a template": {
			constraintd.ToolCalls(tools, constraintd.ToolTemplate{Begin: "CALL "}, constraintd.ToolCallOptions{
				Choice: constraintd.ToolNamed("f"), Single: true, JSON: compact,
			}), `CALL {"name`, []uint32{'"'},
		},
		"allowed tokens": {constraintd.AllowedTokens(7, 9), "", []uint32{7, 9, eog, eog2}},
		"allow list":     {constraintd.AllowList([]uint32{3}, []uint32{4, 5}), "\x04", []uint32{5}},
		"token sequence": {constraintd.TokenSequence(11), "", []uint32{11}},
		"all of": {
			constraintd.AllOf(constraintd.Regex("[a-c]"), constraintd.DenyRanges(constraintd.IDRange{First: 'b', End: 'd'})),
			"", []uint32{'a', bytevocabulary.SecondA},
		},
		"all of with a length": {
			constraintd.AllOf(constraintd.AllowedTokens(7), constraintd.TokensAtLeast(2)), "\x07", []uint32{7},
		},
		"banned specials": {
			constraintd.AllOf(constraintd.AllowedTokens(7, bytevocabulary.Tool),
				constraintd.BannedSpecials(bytevocabulary.Tool)), "", []uint32{7, eog, eog2},
		},
		"lazy, woken by a word": {
			constraintd.Lazy(constraintd.Regex("<<b>"), constraintd.TriggerWord("<<")), "x<<", []uint32{'b'},
		},
		"lazy, exclusive": {
			constraintd.Lazy(constraintd.Regex("c"), constraintd.TriggerPattern("!").Exclusive()), "x!", []uint32{'c'},
		},
		"lazy by id, at the start": {
			constraintd.LazyIDAgain(lazyID.ID, constraintd.TriggerWord("<<").AtStart()), "<<b", []uint32{'>'},
		},
		"lazy by a full pattern": {
			constraintd.LazyAgain(constraintd.Regex("xy"), constraintd.TriggerPatternFull("(x)")), "x", []uint32{'y'},
		},
		"lazy by a token": {
			constraintd.LazyID(lazyID.ID, constraintd.TriggerToken('#').Exclusive()), "#<<", []uint32{'b'},
		},
	} {
		t.Run(name, func(t *testing.T) {
			session := f.open(t, each.constraint, nil)
			directive := f.step(t, session, text(each.before)...)
			if allowed := directive.Mask.IDs(); !slices.Equal(allowed, each.allowed) {
				t.Errorf("allowed %v, expected %v", allowed, each.allowed)
			}
		})
	}
	if session := f.open(t, constraintd.Unconstrained(), nil); len(session.Directive.Mask.IDs()) != 262 {
		t.Errorf("unconstrained allows %d tokens, expected 262", len(session.Directive.Mask.IDs()))
	}
	reasoning, err := f.OpenSession(t.Context(), constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraintd.Regex("z"),
		ReasoningEnd: &constraintd.ReasoningEnd{Texts: []string{"|"}},
	})
	if err != nil || !reasoning.Directive.Mask.Allows('a') {
		t.Fatalf("reasoning: %v", err)
	}
	resumed, err := f.ResumeSession(t.Context(), reasoning.ID)
	if err != nil || resumed.ReasoningEnd == nil || !slices.Equal(resumed.ReasoningEnd.Texts, []string{"|"}) {
		t.Fatalf("resumed: %+v, %v", resumed, err)
	}
	reopened := f.open(t, resumed.Constraint, resumed.Sampler)
	if allowed := reopened.Directive.Mask.IDs(); !slices.Equal(allowed, []uint32{'z'}) {
		t.Errorf("the same constraint without reasoning: %v", allowed)
	}
	if allowed := f.step(t, resumed.Session, text("a|")...).Mask.IDs(); !slices.Equal(allowed, []uint32{'z'}) {
		t.Errorf("after reasoning %v", allowed)
	}
}
