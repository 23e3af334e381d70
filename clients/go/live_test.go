package constraintd_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/bytevocabulary"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

func TestMain(m *testing.M) {
	code := m.Run()
	live.EndShared()
	os.Exit(code)
}

// fixture is a live daemon in memory, a client of it, and the byte vocabulary.
type fixture struct {
	*constraintd.Daemon
	vocabulary string
}

// newFixture shares its daemon with other tests, unless it has to be started with some arguments.
func newFixture(t *testing.T, arguments ...string) *fixture {
	t.Helper()
	if len(arguments) == 0 {
		return connect(t, live.SharedDaemon(t))
	}
	return connect(t, live.StartDaemon(t, "memory", arguments...))
}

func connect(t *testing.T, process *live.Process) *fixture {
	t.Helper()
	daemon := newDaemon(t, process.Address)
	return &fixture{daemon, registerBytes(t, daemon)}
}

func newDaemon(t *testing.T, targets ...string) *constraintd.Daemon {
	t.Helper()
	daemon, err := constraintd.NewDaemon(targets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Close() })
	return daemon
}

func registerBytes(t *testing.T, daemon *constraintd.Daemon) string {
	t.Helper()
	vocabulary, err := daemon.RegisterTokenTable(t.Context(), bytevocabulary.Table(), bytevocabulary.EOGIDs(),
		bytevocabulary.Width)
	if err != nil {
		t.Fatal(err)
	}
	return vocabulary.ID
}

func (f *fixture) open(
	t *testing.T, constraint constraintd.Constraint, sampler *constraintd.SamplerConfig,
) *constraintd.Session {
	t.Helper()
	session, err := f.OpenSession(t.Context(), constraintd.OpenRequest{
		VocabularyID: f.vocabulary, Constraint: constraint, Sampler: sampler,
	})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func (f *fixture) stream(t *testing.T) *constraintd.DecodeStream {
	t.Helper()
	stream, err := f.Decode(t.Context(), f.vocabulary, bytevocabulary.Width)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return stream
}

// step reports one token after the other by unary calls, and gives the last answer.
func (f *fixture) step(t *testing.T, session *constraintd.Session, tokens ...uint32) *constraintd.Directive {
	t.Helper()
	for _, token := range tokens {
		if _, err := f.Step(t.Context(), report(session, token)); err != nil {
			t.Fatalf("token %d: %v", token, err)
		}
	}
	return session.Directive
}

func report(session *constraintd.Session, tokens ...uint32) constraintd.Report {
	return constraintd.Report{Session: session, Tokens: tokens, Surprisals: make([]float32, len(tokens))}
}

// text is tokens of the byte vocabulary.
func text(text string) []uint32 {
	tokens := make([]uint32, len(text))
	for i := range len(text) {
		tokens[i] = uint32(text[i])
	}
	return tokens
}

// refused asserts that err is an Error of this reason.
func refused(t *testing.T, err error, reason constraintd.Reason) *constraintd.Error {
	t.Helper()
	refusal, ok := errors.AsType[*constraintd.Error](err)
	if !ok || !errors.Is(err, reason) {
		t.Fatalf("got %v, expected %s", err, reason)
	}
	return refusal
}

func within(t *testing.T, duration time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	t.Cleanup(cancel)
	return ctx
}
