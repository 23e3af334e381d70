package constraintd_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/live"
)

func newRunner(t *testing.T, targets ...string) *constraintd.Runner {
	t.Helper()
	runner, err := constraintd.NewRunner(targets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runner.Close() })
	return runner
}

// runnerFixture is a live runner of a tiny model, and its daemon.
func runnerFixture(t *testing.T) (*constraintd.Runner, *constraintd.Daemon) {
	t.Helper()
	daemon := live.StartDaemon(t, "memory")
	runner := live.StartRunner(t, live.TinyModel(t), daemon.Address)
	return newRunner(t, runner.Address), newDaemon(t, daemon.Address)
}

func bounded(most uint32, stages ...*constraintd.SamplerStage) *constraintd.SamplerConfig {
	return &constraintd.SamplerConfig{Stages: stages, MaxTokens: &most, Seed: new(uint64(11))}
}

func TestARunnerWritesWhatItIsAskedFor(t *testing.T) {
	runner, daemon := runnerFixture(t)
	ctx := within(t, 120*time.Second)
	info, err := runner.ModelInfo(ctx)
	if err != nil || info.GetLogitsWidth() == 0 {
		t.Fatalf("model info %v, %v", info, err)
	}

	t.Run("JSON by a schema, in pieces", func(t *testing.T) {
		generation := runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.ChatPrompt(constraintd.Message{Role: "user", Content: "Hi"}),
			Constraint: constraintd.JSONSchema(
				`{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false}`),
			Sampler: bounded(200), Logprobs: new(uint32(2)),
		})
		defer generation.Close()
		var kinds []string
		positions := 0
		for event, err := range generation.Events() {
			if err != nil {
				t.Fatal(err)
			}
			switch event := event.(type) {
			case *constraintd.Started:
				kinds = append(kinds, "started")
			case *constraintd.Delta:
				positions += len(event.Logprobs)
				for i, position := range event.Logprobs {
					if position.Taken.Token != event.Tokens[i] || position.Taken.Logprob > 0 || len(position.Top) > 2 {
						t.Errorf("log probabilities %+v of token %d", position, event.Tokens[i])
					}
				}
			case *constraintd.Finished:
				kinds = append(kinds, "finished")
			}
		}
		if !slices.Equal(kinds, []string{"started", "finished"}) || positions != len(generation.Tokens()) {
			t.Errorf("events %v; %d log probabilities for %d tokens", kinds, positions, len(generation.Tokens()))
		}
		var document struct{ A string }
		if err := json.Unmarshal([]byte(generation.Text()), &document); err != nil || (document.A != "x" && document.A != "y") {
			t.Errorf("text %q: %v", generation.Text(), err)
		}
		finished := generation.Finished()
		if finished.Finish.SchemaSatisfied == nil || !*finished.Finish.SchemaSatisfied || finished.ToolAnswer != nil ||
			finished.Usage.CompletionTokens == 0 || finished.Usage.Decode <= 0 {
			t.Errorf("finished %+v", finished)
		}
	})

	t.Run("parsed tool calls", func(t *testing.T) {
		tools := `[{"type":"function","function":{"name":"look_up","parameters":{"type":"object",
			"properties":{"n":{"enum":[4]}},"required":["n"],"additionalProperties":false}}}]`
		finished, err := runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.ChatPromptWithTools("[]",
				constraintd.Message{Role: "user", Content: "Look it up."},
				constraintd.Message{Role: "assistant", ToolCalls: []constraintd.ToolCall{{ID: "1", Name: "look_up", Arguments: "{}"}}},
				constraintd.Message{Role: "tool", ToolCallID: "1", Name: "look_up", Content: "?"}),
			Constraint: constraintd.ToolCalls(tools, constraintd.FormatHermes, constraintd.ToolCallOptions{
				Choice: constraintd.ToolsRequired, Single: true,
				JSON: &constraintd.JSONOptions{Whitespace: constraintd.WhitespaceCompact},
			}),
			Sampler: bounded(200),
		}).Wait()
		if err != nil {
			t.Fatal(err)
		}
		answer := finished.ToolAnswer
		if answer == nil || len(answer.Calls) != 1 || answer.Calls[0].Name != "look_up" || answer.Calls[0].Arguments != `{"n":4}` ||
			answer.Calls[0].ID == "" || answer.Malformed != "" {
			t.Errorf("answer %+v", answer)
		}
	})

	for reason, each := range map[constraintd.FinishReason]struct {
		constraint constraintd.Constraint
		sampler    *constraintd.SamplerConfig
		text       string
	}{
		// The end is token 1 of the tiny model's vocabulary; "a" and "b" are 67 and 68.
		constraintd.FinishEOG: {
			constraintd.Regex("a+"), bounded(5, constraintd.LogitBias(map[uint32]float64{1: 100}), constraintd.Greedy()), "a",
		},
		constraintd.FinishGrammarExhausted: {constraintd.Regex("abc"), bounded(50), "abc"},
		constraintd.FinishLength:           {constraintd.Regex("a{500}"), bounded(1), "a"},
		constraintd.FinishStopString: {constraintd.Regex("ab!c"), &constraintd.SamplerConfig{
			StopStrings: [][]byte{[]byte("!")},
		}, "ab"},
		constraintd.FinishStopID: {constraintd.TokenSequence(67, 68), &constraintd.SamplerConfig{StopIds: []uint32{68}}, "a"},
	} {
		t.Run(string(reason), func(t *testing.T) {
			generation := runner.Generate(ctx, constraintd.GenerateRequest{
				Prompt: constraintd.TextPrompt("x"), Constraint: each.constraint, Sampler: each.sampler,
			})
			finished, err := generation.Wait()
			if err != nil || finished.Finish.Reason != reason || generation.Text() != each.text {
				t.Errorf("%q, %+v, %v; expected %q", generation.Text(), finished, err, each.text)
			}
		})
	}

	t.Run("a dead end is an error, with the text so far", func(t *testing.T) {
		generation := runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.TokenPrompt(70, 71), Sampler: bounded(9),
			Constraint: constraintd.AllOf(constraintd.Regex("ab"), constraintd.Regex("ac")),
		})
		_, err := generation.Wait()
		refused(t, err, constraintd.ReasonNoTokenAllowed)
		if generation.Text() != "a" || generation.Finished() != nil {
			t.Errorf("text %q", generation.Text())
		}
		if _, again := generation.Wait(); again != err {
			t.Errorf("asked again: %v", again)
		}
	})

	t.Run("bad requests", func(t *testing.T) {
		_, err := runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.JSONSchema(`{"type": 3}`),
		}).Wait()
		refused(t, err, constraintd.ReasonInvalidGrammar)
		_, err = runner.Generate(ctx, constraintd.GenerateRequest{Prompt: constraintd.TextPrompt("x")}).Wait()
		refused(t, err, constraintd.ReasonInvalidField)
		_, err = runner.Generate(ctx, constraintd.GenerateRequest{Constraint: constraintd.Regex("a")}).Wait()
		refused(t, err, constraintd.ReasonInvalidField)
		_, err = runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt(strings.Repeat("x", 5000)), Constraint: constraintd.Regex("a"),
		}).Wait()
		refused(t, err, constraintd.ReasonContextExceeded)
		_, err = runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.GrammarID("\xff"), Resumable: true,
		}).Wait()
		if err == nil || errors.As(err, new(*constraintd.Error)) {
			t.Errorf("a grammar id that is no UTF-8: %v", err)
		}
	})

	t.Run("cancelling frees the session", func(t *testing.T) {
		generation := runner.Generate(ctx, constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("[a-z]{1900}"), Sampler: bounded(1900),
		})
		for _, err := range generation.Texts() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		generation.Close()
		// What had arrived before still comes.
		var err error
		for _, err = range generation.Events() {
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after cancelling: %v", err)
		}
		for _, wait := within(t, 30*time.Second), 5*time.Millisecond; ; time.Sleep(wait) {
			_, err := daemon.GetSession(ctx, generation.SessionID())
			if errors.Is(err, constraintd.ReasonUnknownSession) {
				break
			}
			if err != nil || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("a deadline ends it", func(t *testing.T) {
		generation := runner.Generate(within(t, 150*time.Millisecond), constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("[a-z]{1900}"), Sampler: bounded(1900),
			Resumable: true,
		})
		_, err := generation.Wait()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if closed, err := runner.CloseGeneration(ctx, generation.SessionID()); err != nil || !closed {
			t.Errorf("closed %v, %v", closed, err)
		}
	})
}

func TestARunnerThatIsKilledInTheMiddleIsGoneOnFromByTheNext(t *testing.T) {
	daemon := live.StartDaemon(t, "sqlite:"+t.TempDir()+"/sessions.sqlite")
	model := live.TinyModel(t)
	processes := []*live.Process{
		live.StartRunner(t, model, daemon.Address), live.StartRunner(t, model, daemon.Address),
	}
	runner := newRunner(t, processes[0].Address, processes[1].Address)
	generation := runner.Generate(within(t, 120*time.Second), constraintd.GenerateRequest{
		Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("[a-zé ]{300}"), Sampler: bounded(600), Resumable: true,
	})
	defer generation.Close()
	running, kills, started := 0, 0, 0
	for event, err := range generation.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if _, first := event.(*constraintd.Started); first {
			started++
		}
		if len(generation.Tokens()) > 60*(kills+1) && kills < 3 {
			kills++
			if kills == 2 { // the daemon, too
				daemon.Kill()
				daemon.Start()
			}
			processes[running].Kill()
			if kills == 3 {
				processes[running].Start()
			}
			if kills == 2 {
				processes[0].Start()
			}
			running = 1 - running
		}
	}
	if kills != 3 || started != 1 {
		t.Fatalf("%d kills, %d beginnings", kills, started)
	}
	found, err := newDaemon(t, daemon.Address).GetSession(t.Context(), generation.SessionID())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found.GetTokens(), generation.Tokens()) {
		t.Errorf("seen %v, the daemon has %v", generation.Tokens(), found.GetTokens())
	}
	table, _, err := newDaemon(t, daemon.Address).TokenTable(t.Context(), found.GetSession().GetVocabularyId())
	if err != nil {
		t.Fatal(err)
	}
	if spelled := string(table.Text(generation.Tokens())); spelled != generation.Text() {
		t.Errorf("the tokens spell %q, seen %q", spelled, generation.Text())
	}
	if closed, err := runner.CloseGeneration(t.Context(), generation.SessionID()); err != nil || !closed {
		t.Errorf("closed %v, %v", closed, err)
	}
}

func TestAGenerationIsResumedByAnotherClient(t *testing.T) {
	runner, _ := runnerFixture(t)
	ctx := within(t, 60*time.Second)
	first := runner.Generate(ctx, constraintd.GenerateRequest{
		Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("[a-z]{120}"), Sampler: bounded(200), Resumable: true,
	})
	for range first.Texts() {
		break
	}
	seenTokens, seenText := len(first.Tokens()), first.Text()
	first.Close()
	second := runner.Resume(ctx, constraintd.ResumeRequest{
		SessionID: first.SessionID(), SeenTokens: uint64(seenTokens), SeenTextBytes: uint64(len(seenText)), Exact: true,
	})
	finished, err := second.Wait()
	if err != nil || finished.Finish.Reason != constraintd.FinishGrammarExhausted || len(seenText+second.Text()) != 120 {
		t.Fatalf("%q and %q, %+v, %v", seenText, second.Text(), finished, err)
	}
	_, err = runner.Resume(ctx, constraintd.ResumeRequest{SessionID: first.SessionID(), SeenTokens: 10_000}).Wait()
	if refusal := refused(t, err, constraintd.ReasonInvalidField); refusal.Metadata["expected_position"] == "" {
		t.Errorf("metadata %v", refusal.Metadata)
	}
	if closed, err := runner.CloseGeneration(ctx, first.SessionID()); err != nil || !closed {
		t.Errorf("closed %v, %v", closed, err)
	}
	_, err = runner.Resume(ctx, constraintd.ResumeRequest{SessionID: first.SessionID()}).Wait()
	refused(t, err, constraintd.ReasonUnknownSession)
}

func TestAGenerationEndsWhereNoRunnerComesBack(t *testing.T) {
	absent := "unix:" + t.TempDir() + "/none.sock"
	runner := newRunner(t, absent, absent+"2")
	began := time.Now()
	_, err := runner.Generate(t.Context(), constraintd.GenerateRequest{
		Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("a"), Resumable: true,
		ResumeTimeout: 400 * time.Millisecond,
	}).Wait()
	refusal, ok := errors.AsType[*constraintd.Error](err)
	if !ok || refusal.Code != codes.Unavailable || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	_, err = runner.Generate(t.Context(), constraintd.GenerateRequest{
		Prompt: constraintd.TextPrompt("x"), Constraint: constraintd.Regex("a"),
	}).Wait()
	if !constraintd.IsRetryable(err) {
		t.Errorf("without resuming: %v", err)
	}
}
