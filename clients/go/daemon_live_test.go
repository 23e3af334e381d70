package constraintd_test

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/bytevocabulary"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

func TestATableComesBackAsItWasRegistered(t *testing.T) {
	f := newFixture(t)
	table, vocabulary, err := f.TokenTable(t.Context(), f.vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	given := bytevocabulary.Table()
	for id, token := range table.Tokens {
		if !bytes.Equal(token, given.Tokens[id]) {
			t.Errorf("token %d is %q, expected %q", id, token, given.Tokens[id])
		}
	}
	if table.Special[bytevocabulary.Tool] != "<tool>" || len(table.Special) != 3 {
		t.Errorf("special tokens %v", table.Special)
	}
	if vocabulary.LogitsWidth != 300 || vocabulary.TokenCount != 263 || !slices.Equal(vocabulary.EOGIDs, []uint32{256, 258}) {
		t.Errorf("vocabulary %+v", vocabulary)
	}
	if got := string(table.Text([]uint32{'x', bytevocabulary.AB, bytevocabulary.Tool, 5000})); got != "xab" {
		t.Errorf("text %q", got)
	}
	_, _, err = f.TokenTable(t.Context(), strings.Repeat("0", 64))
	refused(t, err, constraintd.ReasonUnknownVocabulary)
}

func TestAVocabularyOfSeveralChunksIsRegistered(t *testing.T) {
	f := newFixture(t)
	table := constraintd.TokenTable{Special: map[uint32]string{0: "</s>"}, Tokens: [][]byte{nil}}
	for i := range 5000 {
		table.Tokens = append(table.Tokens, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 250))
	}
	vocabulary, err := f.RegisterTokenTable(t.Context(), table, []uint32{0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if vocabulary.LogitsWidth != 5001 {
		t.Errorf("width %d, expected 5001", vocabulary.LogitsWidth)
	}
	_, err = f.RegisterVocabulary(t.Context(), constraintd.VocabularyUpload{
		Format: constraintd.TokenizerJSON, Tokenizer: []byte("{"), EOGIDs: []uint32{0},
	})
	refused(t, err, constraintd.ReasonInvalidVocabulary)
}

func TestAMessageThatIsTooLargeIsRefusedAndHarmsNobody(t *testing.T) {
	f := newFixture(t)
	limit := 0
	if info, err := f.ServerInfo(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		limit = int(info.GetLimits().GetMaxMessageBytes())
	}
	_, err := f.ImportSession(t.Context(), make([]byte, limit+1))
	refusal, ok := err.(*constraintd.Error)
	if !ok || refusal.Code != codes.ResourceExhausted || refusal.Retryable() {
		t.Fatalf("got %v", err)
	}
	f.open(t, constraintd.Regex("a"), nil)
}

func TestEveryFinishHasItsReason(t *testing.T) {
	f := newFixture(t)
	for reason, each := range map[constraintd.FinishReason]struct {
		constraint constraintd.Constraint
		sampler    *constraintd.SamplerConfig
		tokens     []uint32
		cut        uint64
	}{
		constraintd.FinishEOG: {constraintd.Regex("a+"), nil, []uint32{'a', bytevocabulary.EOG}, 1},
		constraintd.FinishStopString: {
			constraintd.Unconstrained(), &constraintd.SamplerConfig{StopStrings: [][]byte{[]byte("!!")}}, text("ab!!"), 2,
		},
		constraintd.FinishStopID: {
			constraintd.Unconstrained(), &constraintd.SamplerConfig{StopIds: []uint32{'z'}}, text("abz"), 2,
		},
		constraintd.FinishGrammarExhausted: {constraintd.Regex("abc"), nil, text("abc"), 3},
		constraintd.FinishLength: {
			constraintd.Regex("a+b"), &constraintd.SamplerConfig{MaxTokens: new(uint32(2))}, text("aa"), 2,
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			session := f.open(t, each.constraint, each.sampler)
			finish := f.step(t, session, each.tokens...).Finish
			if finish == nil || finish.Reason != reason || finish.CutOffset != each.cut {
				t.Fatalf("finish %+v, expected %s at %d", finish, reason, each.cut)
			}
			if finish.ConstraintIncomplete != (reason == constraintd.FinishLength) {
				t.Errorf("incomplete: %v", finish.ConstraintIncomplete)
			}
			_, err := f.Step(t.Context(), report(session, 'a'))
			refused(t, err, constraintd.ReasonSessionFinished)
		})
	}
}

func TestEveryWrongStepHasItsReason(t *testing.T) {
	f := newFixture(t)
	session := f.open(t, constraintd.Regex("a*b"), nil)
	f.step(t, session, text("aa")...)
	ask := func(change func(*constraintd.Session), tokens ...uint32) error {
		// A handle of its own: what it gets told is not the session's business.
		copied, directive := *session, *session.Directive
		copied.Directive = &directive
		change(&copied)
		_, err := f.Step(t.Context(), report(&copied, tokens...))
		return err
	}
	at := func(position uint64) func(*constraintd.Session) {
		return func(s *constraintd.Session) { s.Directive.Position = position }
	}
	gap := refused(t, ask(at(7), 'a'), constraintd.ReasonPositionGap)
	if expected, ok := gap.ExpectedPosition(); !ok || expected != 2 {
		t.Errorf("expected position %d, %v", expected, ok)
	}
	conflict := refused(t, ask(at(1), 'b'), constraintd.ReasonPositionConflict)
	if !slices.Equal(conflict.LoggedTokens(), []uint32{'a'}) {
		t.Errorf("logged tokens %v", conflict.LoggedTokens())
	}
	if err := ask(at(1), 'a'); err != nil {
		t.Errorf("a repeat of the last step: %v", err)
	}
	refused(t, ask(at(0), 'a'), constraintd.ReasonStalePosition)
	refused(t, ask(func(s *constraintd.Session) { s.Epoch++ }, 'a'), constraintd.ReasonStaleEpoch)
	illegal := refused(t, ask(at(2), 'a', 'x'), constraintd.ReasonTokenNotAllowed)
	if index, ok := illegal.IllegalIndex(); !ok || index != 1 {
		t.Errorf("illegal index %d, %v", index, ok)
	}
	refused(t, ask(func(s *constraintd.Session) { s.ID = constraintd.NewSessionID() }, 'a'), constraintd.ReasonUnknownSession)
	_, err := f.Step(t.Context(), constraintd.Report{
		Session: session, Tokens: []uint32{'a'}, Surprisals: []float32{float32(math.NaN())},
	})
	refused(t, err, constraintd.ReasonInvalidSurprisal)
	if _, err := f.Step(t.Context(), constraintd.Report{Session: session, Tokens: []uint32{'a'}}); err == nil {
		t.Error("a report without surprisals went out")
	}
	if found, err := f.GetSession(t.Context(), session.ID); err != nil || !slices.Equal(found.GetTokens(), text("aa")) {
		t.Errorf("refused steps left %v, %v", found.GetTokens(), err)
	}
}

func TestADeadEndLeavesTheSessionOpenForAWiderConstraint(t *testing.T) {
	f := newFixture(t)
	session := f.open(t, constraintd.AllOf(constraintd.Regex("ab"), constraintd.Regex("ac")), nil)
	if end := f.step(t, session, 'a').NoTokenAllowed; end == nil || end.Message == "" {
		t.Fatalf("directive %+v", session.Directive)
	}
	directive, err := f.UpdateSession(t.Context(), session, constraintd.UpdateRequest{Constraint: constraintd.Regex("z")})
	if err != nil || !slices.Equal(directive.Mask.IDs(), []uint32{'z'}) {
		t.Fatalf("after the update: %+v, %v", directive, err)
	}
}

func TestASessionIsChangedForkedMovedAndClosed(t *testing.T) {
	process := live.StartDaemon(t, "memory")
	f, other := connect(t, process), newFixture(t)
	ctx := t.Context()
	seed := &constraintd.SamplerConfig{Seed: new(uint64(5))}
	session, err := f.OpenSession(ctx, constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraintd.Regex("[a-z]+"), Sampler: seed, PromptTokens: text("Hi"),
	})
	if err != nil || session.Seed != 5 {
		t.Fatalf("%+v, %v", session, err)
	}
	f.step(t, session, text("abc")...)
	first := session.Epoch

	request := constraintd.RollbackRequest{ToPosition: 1, RequestID: constraintd.NewRequestID()}
	before := *session
	directive, err := f.RollbackSession(ctx, session, request)
	if err != nil || directive.Position != 1 || session.Epoch == first {
		t.Fatalf("rollback: %+v, %v", directive, err)
	}
	if _, err := f.RollbackSession(ctx, &before, request); err != nil || before.Epoch != session.Epoch {
		t.Errorf("the rollback again: epoch %d, expected %d, %v", before.Epoch, session.Epoch, err)
	}
	fork, err := f.ForkSession(ctx, session.ID, constraintd.ForkRequest{Position: 1})
	if err != nil || fork.Position() != 1 || fork.ID == session.ID {
		t.Fatalf("fork: %+v, %v", fork, err)
	}
	f.step(t, fork, 'z')

	if _, err := f.UpdateSession(ctx, session, constraintd.UpdateRequest{
		NewTurn: &constraintd.NewTurn{PromptTokens: text("?")}, Seed: new(uint64(6)),
	}); err != nil || session.Seed != 6 {
		t.Fatalf("update: seed %d, %v", session.Seed, err)
	}
	f.step(t, session, 'q')
	resumed, err := f.ResumeSession(ctx, session.ID)
	if err != nil {
		t.Fatal(err)
	}
	if fed := resumed.ModelInput(); !slices.Equal(fed, text("Hia?q")) || resumed.VocabularyID != f.vocabulary {
		t.Errorf("the model's input %v", fed)
	}
	_, err = f.Step(ctx, report(session, 'x'))
	refused(t, err, constraintd.ReasonStaleEpoch)
	f.step(t, resumed.Session, 'x')

	envelope, err := f.ExportSession(ctx, session.ID)
	if err != nil {
		t.Fatal(err)
	}
	imported, err := other.ImportSession(ctx, envelope)
	if err != nil || imported.ID != session.ID || imported.Position() != 3 {
		t.Fatalf("import: %+v, %v", imported, err)
	}
	_, err = other.ImportSession(ctx, envelope[:len(envelope)-3])
	refused(t, err, constraintd.ReasonInvalidEnvelope)

	var listed []string
	for found, err := range f.ListSessions(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, constraintd.SessionID(found.GetSessionId()).String())
	}
	expected := []string{session.ID.String(), fork.ID.String()}
	slices.Sort(expected)
	if !slices.Equal(listed, expected) {
		t.Errorf("listed %v, expected %v", listed, expected)
	}
	for _, wanted := range []bool{true, false} {
		if closed, err := f.CloseSession(ctx, session.ID); err != nil || closed != wanted {
			t.Errorf("closed %v, expected %v, %v", closed, wanted, err)
		}
	}
	_, err = f.GetSession(ctx, session.ID)
	refused(t, err, constraintd.ReasonUnknownSession)
}

func TestTheSameOpeningAgainIsTheSameSessionAndAnotherIsRefused(t *testing.T) {
	f := newFixture(t)
	request := constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraintd.Choice("yes", "no"), SessionID: constraintd.NewSessionID(),
	}
	first, err := f.OpenSession(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.OpenSession(t.Context(), request)
	if err != nil || again.Epoch != first.Epoch || again.Seed != first.Seed {
		t.Errorf("again %+v, first %+v, %v", again, first, err)
	}
	request.Constraint = constraintd.Choice("maybe")
	_, err = f.OpenSession(t.Context(), request)
	refused(t, err, constraintd.ReasonAlreadyExists)
}

func TestAFullDaemonSaysWhenToComeAgain(t *testing.T) {
	f := newFixture(t, "--max-sessions", "1")
	session := f.open(t, constraintd.Regex("a+"), nil)
	second := constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraintd.Regex("b+"), SessionID: constraintd.NewSessionID(),
	}
	_, err := f.OpenSession(t.Context(), second)
	refusal := refused(t, err, constraintd.ReasonLimitReached)
	if !refusal.Retryable() || refusal.RetryDelay <= 0 || refusal.Metadata["limit"] != "1" {
		t.Errorf("%+v", refusal)
	}
	time.AfterFunc(50*time.Millisecond, func() { f.CloseSession(context.Background(), session.ID) })
	if err := constraintd.Retry(within(t, 30*time.Second), func(ctx context.Context) error {
		_, err := f.OpenSession(ctx, second)
		return err
	}); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}
