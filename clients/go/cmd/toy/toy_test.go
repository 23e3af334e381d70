package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

// expected.jsonl is what another implementation of the toy, in Python and with the repository's own runner's sampler,
// made of sessions.json: 24 sessions of regular expressions, schemas, GBNF, choices, dead ends and no constraint, under
// four sampler configs.
const (
	sessionsFile = "testdata/sessions.json"
	expectedFile = "testdata/expected.jsonl"
)

func expected(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(expectedFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func toy(ctx context.Context, daemon string) (string, error) {
	var output bytes.Buffer
	err := run(ctx, []string{
		"--daemon", daemon, "--vocabulary-tokens", "byte", "--sessions", sessionsFile, "--one-stream", "--patience", "60",
	}, &output)
	return output.String(), err
}

// watcher tells how far all sessions have come together.
type watcher struct {
	t      *testing.T
	daemon *constraintd.Daemon
}

func watch(t *testing.T, process *live.Process) *watcher {
	t.Helper()
	daemon, err := constraintd.NewDaemon([]string{process.Address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Close() })
	return &watcher{t, daemon}
}

// waitPast waits until a session's position is above some, and gives it.
func (w *watcher) waitPast(id constraintd.SessionID, position uint64) uint64 {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if found, err := w.daemon.GetSession(w.t.Context(), id); err == nil && found.GetSession().GetPosition() > position {
			return found.GetSession().GetPosition()
		}
	}
	w.t.Fatalf("session %s never came past %d", id, position)
	return 0
}

func startSQLite(t *testing.T) *live.Process {
	t.Helper()
	return live.StartDaemon(t, "sqlite:"+filepath.Join(t.TempDir(), "sessions.sqlite"))
}

func longSession(t *testing.T) constraintd.SessionID {
	t.Helper()
	id, err := constraintd.ParseSessionID("00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTheToyMakesTheSameTokensThroughDeathsOfTheDaemon(t *testing.T) {
	process := startSQLite(t)
	watcher := watch(t, process)
	done := make(chan error, 1)
	var output string
	go func() {
		var err error
		output, err = toy(t.Context(), process.Address)
		done <- err
	}()
	var position uint64
	for range 3 {
		position = watcher.waitPast(longSession(t), position)
		process.Kill()
		process.Start()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if output != expected(t) {
		t.Errorf("got\n%s\nexpected\n%s", output, expected(t))
	}
	// Again, with all of them finished.
	if again, err := toy(t.Context(), process.Address); err != nil || again != output {
		t.Errorf("again: %v\n%s", err, again)
	}
}

func TestAToyThatWasInterruptedIsGoneOnFrom(t *testing.T) {
	process := startSQLite(t)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := toy(ctx, process.Address)
		done <- err
	}()
	watch(t, process).waitPast(longSession(t), 3)
	interrupt()
	if err := <-done; err == nil {
		t.Log("it was through already")
	}
	if output, err := toy(t.Context(), process.Address); err != nil || output != expected(t) {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestWhatTheToyCanNotReadIsRefused(t *testing.T) {
	id := `"session_id": "00000000000000000000000000000001"`
	for name, each := range map[string]struct{ text, wrong string }{
		"no JSON":              {`[`, "unexpected EOF"},
		"more behind the list": {`[] []`, "something follows"},
		"a short id":           {`[{"session_id": "00"}]`, "32 hex digits"},
		"twice":                {`[{` + id + `, "constraint": {}}, {` + id + `, "constraint": {}}]`, "twice"},
		"no constraint":        {`[{` + id + `}]`, "constraint"},
		"an unknown field":     {`[{` + id + `, "constraint": {}, "spice": 1}]`, "spice"},
		"an unknown stage":     {`[{` + id + `, "constraint": {}, "sampler": {"stages": [{"spice": {}}]}}]`, "spice"},
		"a negative token":     {`[{` + id + `, "constraint": {}, "prompt_tokens": [-1]}]`, "prompt_tokens"},
	} {
		file := filepath.Join(t.TempDir(), "sessions.json")
		if err := os.WriteFile(file, []byte(each.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(t.Context(), []string{"--daemon", "unix:/nowhere", "--sessions", file}, os.Stderr)
		if err == nil || !strings.Contains(err.Error(), each.wrong) {
			t.Errorf("%s: %v, expected %q", name, err, each.wrong)
		}
	}
	for _, arguments := range [][]string{
		{}, {"--daemon", "unix:/a"}, {"--daemon", "unix:/a", "--sessions", "x", "--vocabulary-tokens", "words"},
		{"--daemon", "unix:/a", "--sessions", "x", "--patience", "-1"}, {"--daemon", "unix:/a", "--sessions", "x", "more"},
	} {
		if err := run(t.Context(), arguments, os.Stderr); err == nil {
			t.Errorf("%q was taken", arguments)
		}
	}
}
