// Command stream-json has a runner write JSON that satisfies a schema, and shows it as it comes. It survives its runner
// and its daemon: stop one while it writes, and it goes on when another answers at one of the targets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/constraintd/constraintd/clients/go"
)

const schema = `{
  "type": "object",
  "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
  "required": ["name", "age"],
  "additionalProperties": false
}`

func main() {
	targets := flag.String("runner", "unix:/tmp/runner.sock", "unix:/path or host:port, or several, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := invent(ctx, strings.Split(*targets, ",")); err != nil {
		log.Fatal(err)
	}
}

func invent(ctx context.Context, targets []string) error {
	runner, err := constraintd.NewRunner(targets)
	if err != nil {
		return err
	}
	defer runner.Close()

	generation := runner.Generate(ctx, constraintd.GenerateRequest{
		Prompt: constraintd.ChatPrompt(constraintd.Message{Role: "user", Content: "Invent a person."}),
		Constraint: constraintd.JSONSchema(schema).WithJSONOptions(
			&constraintd.JSONOptions{Whitespace: constraintd.WhitespaceNatural}),
		Sampler: &constraintd.SamplerConfig{
			Stages:    []*constraintd.SamplerStage{constraintd.TopP(0.9), constraintd.Temperature(0.7)},
			MaxTokens: new(uint32(200)),
		},
		Resumable: true,
	})
	defer generation.Close()
	for text, err := range generation.Texts() {
		if errors.Is(err, constraintd.ReasonNoTokenAllowed) {
			return fmt.Errorf("the constraint leaves no way on after %q: %w", generation.Text(), err)
		}
		if err != nil {
			return err
		}
		fmt.Print(text)
	}
	finished := generation.Finished()
	fmt.Printf("\n(%s, %d tokens in %s)\n", finished.Finish.Reason, finished.Usage.CompletionTokens, finished.Usage.Decode)

	_, err = runner.CloseGeneration(ctx, generation.SessionID())
	return err
}
