// Command load is a client that never stops asking: it generates the requests of a file one after the other, round and
// round, resumable, until its standard input ends, and prints each event as a line of JSON. The repository's tests run
// it while they restart daemons and runners.
//
//	load --runner unix:/tmp/runner.sock --requests requests.json --first 3
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// patience is how long one break, of a generation or of the call that closes it, may last.
const patience = 30 * time.Second

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, input io.Reader, output io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	runners := flags.String("runner", "", "the runner: unix:/path or host:port, or several of one model, separated by commas")
	path := flags.String("requests", "", "`FILE` of the requests, JSON")
	first := flags.Int("first", 0, "the `NUMBER` of the request to begin with")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *runners == "" || *path == "" || flags.NArg() > 0 {
		return fmt.Errorf("expected --runner and --requests, and nothing besides; got %q", arguments)
	}
	requests, err := readRequests(*path)
	if err != nil {
		return err
	}
	if *first < 0 || *first >= len(requests) {
		return fmt.Errorf("--first %d; there are %d requests, counted from 0", *first, len(requests))
	}
	runner, err := constraintd.NewRunner(strings.Split(*runners, ","))
	if err != nil {
		return err
	}
	defer runner.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, input)
		close(ended)
	}()
	lines := json.NewEncoder(output)
	for number := *first; ; number = (number + 1) % len(requests) {
		if err := generate(ctx, runner, lines, number, requests[number]); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		default:
		}
	}
}

// generate runs one request to its end. What goes wrong at the runner is a line as well.
func generate(
	ctx context.Context, runner *constraintd.Runner, lines *json.Encoder, number int, request constraintd.GenerateRequest,
) error {
	generation := runner.Generate(ctx, request)
	defer generation.Close()
	for event, err := range generation.Events() {
		var line any
		switch event := event.(type) {
		case *constraintd.Started:
			line = map[string]any{"event": "started", "request": number, "session_id": event.SessionID.String()}
		case *constraintd.Delta:
			line = map[string]any{"event": "delta", "tokens": append([]uint32{}, event.Tokens...), "text": event.Text}
		case *constraintd.Finished:
			line = map[string]any{
				"event": "finished", "reason": string(event.Finish.Reason), "tokens": event.Usage.CompletionTokens,
			}
		case nil:
			line = map[string]any{"event": "failed", "request": number, "error": err.Error()}
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := constraintd.Retry(bounded, func(ctx context.Context) error {
		_, err := runner.CloseGeneration(ctx, generation.SessionID())
		return err
	}); err != nil {
		return lines.Encode(map[string]any{"event": "failed", "request": number, "error": err.Error()})
	}
	return nil
}

func readRequests(path string) ([]constraintd.GenerateRequest, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Prompt     string          `json:"prompt"`
		Constraint json.RawMessage `json:"constraint"`
		Sampler    json.RawMessage `json:"sampler"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(entries) == 0 {
		return nil, errors.New(path + " has no requests")
	}
	requests := make([]constraintd.GenerateRequest, len(entries))
	for i, entry := range entries {
		constraint, sampler := &pb.Constraint{}, &pb.SamplerConfig{}
		if err := protojson.Unmarshal(entry.Constraint, constraint); err != nil {
			return nil, fmt.Errorf("%s: constraint of request %d: %w", path, i, err)
		}
		if err := protojson.Unmarshal(entry.Sampler, sampler); err != nil {
			return nil, fmt.Errorf("%s: sampler of request %d: %w", path, i, err)
		}
		requests[i] = constraintd.GenerateRequest{
			Prompt: constraintd.TextPrompt(entry.Prompt), Constraint: constraintd.ConstraintOf(constraint), Sampler: sampler,
			Resumable: true, ResumeTimeout: patience,
		}
	}
	return requests, nil
}
