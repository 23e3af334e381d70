package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// plan is one session to be driven.
type plan struct {
	id         constraintd.SessionID
	constraint constraintd.Constraint
	sampler    *constraintd.SamplerConfig
	prompt     []uint32
}

// result is what became of it.
type result struct {
	SessionID string `json:"session_id"`
	// Tokens are all that were accepted, a terminal one included.
	Tokens []uint32 `json:"tokens"`
	// Finish is the reason's name, or "dead_end".
	Finish string `json:"finish"`
}

func readPlans(path string) ([]plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []struct {
		SessionID    string          `json:"session_id"`
		Constraint   json.RawMessage `json:"constraint"`
		Sampler      json.RawMessage `json:"sampler"`
		PromptTokens []uint32        `json:"prompt_tokens"`
		MaxTokens    *uint32         `json:"max_tokens"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: something follows the list of sessions", path)
	}
	seen := map[constraintd.SessionID]bool{}
	var plans []plan
	for i, entry := range entries {
		wrong := func(err error) error { return fmt.Errorf("%s: session %d: %w", path, i, err) }
		id, err := constraintd.ParseSessionID(entry.SessionID)
		if err != nil {
			return nil, wrong(err)
		}
		if seen[id] {
			return nil, wrong(fmt.Errorf("session id %s stands there twice", id))
		}
		seen[id] = true
		constraint, sampler := &pb.Constraint{}, &pb.SamplerConfig{}
		if err := protojson.Unmarshal(entry.Constraint, constraint); err != nil {
			return nil, wrong(fmt.Errorf("constraint: %w", err))
		}
		if entry.Sampler != nil {
			if err := protojson.Unmarshal(entry.Sampler, sampler); err != nil {
				return nil, wrong(fmt.Errorf("sampler: %w", err))
			}
		}
		// The smaller of the two bounds holds.
		if entry.MaxTokens != nil && (sampler.MaxTokens == nil || *entry.MaxTokens < *sampler.MaxTokens) {
			sampler.MaxTokens = entry.MaxTokens
		}
		plans = append(plans, plan{id, constraintd.ConstraintOf(constraint), sampler, entry.PromptTokens})
	}
	return plans, nil
}
