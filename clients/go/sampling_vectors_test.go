package constraintd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

const (
	vectorFolder = "../../tests/vectors"
	tolerance    = 1e-5
)

// number is a JSON number, or "-inf".
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == `"-inf"` {
		*n = number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

type vector struct {
	Name        string
	Stages      []json.RawMessage
	Logits      []number
	Mask        sampling.Mask
	Adjustments *sampling.Adjustments
	Mu          float64
	Draw        float64
	Expected    Outcome
}

// Outcome is what has to come of a pick; exported, since it is also embedded where package json has to find it.
type Outcome struct {
	Error     string
	Logits    []number
	Kept      []uint32
	Token     uint32
	Surprisal float64
}

func (v *vector) row() []float32 {
	row := make([]float32, len(v.Logits))
	for i, logit := range v.Logits {
		row[i] = float32(logit)
	}
	return row
}

func readVectors(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorFolder, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestEveryStageKeepsAndPicksWhatTheVectorsSay(t *testing.T) {
	for _, file := range []string{
		"greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l",
		"mirostat_v1", "mirostat_v2", "logit_bias", "chains",
	} {
		t.Run(file, func(t *testing.T) {
			var vectors []vector
			readVectors(t, file+".json", &vectors)
			if len(vectors) < 20 {
				t.Fatalf("only %d vectors", len(vectors))
			}
			for i := range vectors {
				if problem := checkVector(&vectors[i]); problem != "" {
					t.Errorf("vector %d, %q: %s", i, vectors[i].Name, problem)
				}
			}
		})
	}
}

func checkVector(v *vector) string {
	config := &constraintd.SamplerConfig{}
	shifts := false
	for _, text := range v.Stages {
		stage := &constraintd.SamplerStage{}
		if err := protojson.Unmarshal(text, stage); err != nil {
			return err.Error()
		}
		config.Stages = append(config.Stages, stage)
		shifts = shifts || stage.GetTemperature() != nil
	}
	chain, err := constraintd.ChainOf(config)
	if err != nil {
		return err.Error()
	}
	picked, err := chain.Pick(v.row(), v.Mask, v.Draw, v.Adjustments, v.Mu)
	if v.Expected.Error == "nothing_left" {
		if !errors.Is(err, sampling.ErrNothingLeft) {
			return fmt.Sprintf("got %+v and %v, expected ErrNothingLeft", picked, err)
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	kept, err := chain.Keep(v.row(), v.Mask, v.Adjustments, v.Mu)
	if err != nil {
		return err.Error()
	}
	if !slices.Equal(kept.IDs, v.Expected.Kept) {
		return fmt.Sprintf("kept %v, expected %v", kept.IDs, v.Expected.Kept)
	}
	// A temperature may shift all logits by one number on its way: nothing that follows can tell.
	shift := 0.0
	if shifts {
		shift = slices.Max(kept.Logits) - float64(slices.Max(v.Expected.Logits))
	}
	for i, id := range kept.IDs {
		got, wanted := kept.Logits[i]-shift, float64(v.Expected.Logits[id])
		if math.Abs(got-wanted) > tolerance*max(1, math.Abs(wanted)) {
			return fmt.Sprintf("the logit of %d is %v, expected %v", id, got, wanted)
		}
	}
	if picked.Token != v.Expected.Token {
		return fmt.Sprintf("picked %d, expected %d", picked.Token, v.Expected.Token)
	}
	if math.Abs(float64(picked.Surprisal)-v.Expected.Surprisal) > tolerance*max(1, v.Expected.Surprisal) {
		return fmt.Sprintf("surprisal %v, expected %v", picked.Surprisal, v.Expected.Surprisal)
	}
	return ""
}

func TestDrawsAreNumPysPhilox(t *testing.T) {
	var draws []struct {
		Seed, Position uint64 `json:",string"`
		Expected       float64
	}
	readVectors(t, "draws.json", &draws)
	if len(draws) < 20 {
		t.Fatalf("only %d vectors", len(draws))
	}
	for _, draw := range draws {
		if got := sampling.Draw(draw.Seed, draw.Position); got != draw.Expected {
			t.Errorf("seed %d position %d: got %v, expected %v", draw.Seed, draw.Position, got, draw.Expected)
		}
	}
}

// sessionVector is one session, token by token. Its adjustments and mu are the daemon's work, and are given.
type sessionVector struct {
	Config struct {
		Seed   uint64 `json:",string"`
		Stages []json.RawMessage
	}
	Steps []struct {
		Logits []number
		Mask   sampling.Mask
	}
	Expected []struct {
		Outcome
		Draw        float64
		Adjustments *sampling.Adjustments
		Mu          float64 // after the step
	}
}

func TestWholeSessionsAreSampledAsTheVectorsSay(t *testing.T) {
	var sessions []sessionVector
	readVectors(t, "sessions.json", &sessions)
	if len(sessions) < 20 {
		t.Fatalf("only %d vectors", len(sessions))
	}
	for i, session := range sessions {
		mu := firstMu(t, session.Config.Stages)
		for position, step := range session.Steps {
			expected := session.Expected[position]
			if draw := sampling.Draw(session.Config.Seed, uint64(position)); draw != expected.Draw {
				t.Errorf("session %d position %d: draw %v, expected %v", i, position, draw, expected.Draw)
			}
			if problem := checkVector(&vector{
				Stages: session.Config.Stages, Logits: step.Logits, Mask: step.Mask, Mu: mu, Draw: expected.Draw,
				Adjustments: expected.Adjustments, Expected: expected.Outcome,
			}); problem != "" {
				t.Errorf("session %d position %d: %s", i, position, problem)
			}
			mu = expected.Mu
		}
	}
}

// firstMu is what mirostat begins with: 2 * tau.
func firstMu(t *testing.T, stages []json.RawMessage) float64 {
	t.Helper()
	for _, text := range stages {
		stage := &constraintd.SamplerStage{}
		if err := protojson.Unmarshal(text, stage); err != nil {
			t.Fatal(err)
		}
		tau := 3.0
		switch {
		case stage.GetMirostatV1() != nil && stage.GetMirostatV1().Tau != nil:
			tau = stage.GetMirostatV1().GetTau()
		case stage.GetMirostatV2() != nil && stage.GetMirostatV2().Tau != nil:
			tau = stage.GetMirostatV2().GetTau()
		case stage.GetMirostatV1() == nil && stage.GetMirostatV2() == nil:
			continue
		}
		return 2 * tau
	}
	return 0
}
