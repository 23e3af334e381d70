// Command own-runner drives a model of one's own with the daemon's masks: here a "model" whose vocabulary is the bytes,
// and whose logits are always the same.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/constraintd/constraintd/clients/go"
)

const (
	endOfText = 256
	width     = 257
)

func main() {
	target := flag.String("daemon", "unix:/tmp/constraintd.sock", "unix:/path or host:port")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := generate(ctx, *target)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}

// logits are what a model would compute from all tokens before.
func logits([]uint32) []float32 {
	row := make([]float32, width)
	row['c'], row['a'], row['t'] = 2, 3, 2
	return row
}

func generate(ctx context.Context, target string) (string, error) {
	daemon, err := constraintd.NewDaemon([]string{target})
	if err != nil {
		return "", err
	}
	defer daemon.Close()

	table := constraintd.TokenTable{Special: map[uint32]string{endOfText: "</s>"}}
	for value := range 256 {
		table.Tokens = append(table.Tokens, []byte{byte(value)})
	}
	vocabulary, err := daemon.RegisterTokenTable(ctx, table, []uint32{endOfText}, width)
	if err != nil {
		return "", err
	}
	session, err := daemon.OpenSession(ctx, constraintd.OpenRequest{
		VocabularyID: vocabulary.ID,
		Constraint:   constraintd.Regex("(my|your) [a-z]{3}"),
		Sampler: &constraintd.SamplerConfig{
			Stages: []*constraintd.SamplerStage{constraintd.TopK(20), constraintd.Temperature(0.5)}, Seed: new(uint64(1)),
		},
	})
	if err != nil {
		return "", err
	}
	chain, err := constraintd.ChainOf(session.Sampler)
	if err != nil {
		return "", err
	}
	stream, err := daemon.Decode(ctx, vocabulary.ID, width)
	if err != nil {
		return "", err
	}
	defer stream.Close()

	var tokens []uint32
	for session.Directive.Mask != nil {
		picked, err := session.Directive.Pick(chain, logits(tokens))
		if err != nil {
			return "", err
		}
		// A real runner sends one batch for all its sessions here, and begins the next forward pass while it waits.
		if err := stream.Send(constraintd.Report{
			Session: session, Tokens: []uint32{picked.Token}, Surprisals: []float32{picked.Surprisal},
		}); err != nil {
			return "", err
		}
		if _, err := stream.Take(ctx, session); err != nil {
			return "", err
		}
		tokens = append(tokens, picked.Token)
	}
	finish := session.Directive.Finish
	if finish == nil {
		return "", fmt.Errorf("dead end: %s", session.Directive.NoTokenAllowed.Message)
	}
	_, err = daemon.CloseSession(ctx, session.ID)
	return string(table.Text(tokens)[:finish.CutOffset]), err
}
