package constraintd

import (
	"encoding/binary"
	"fmt"
	"math"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

// FinishReason says why a session finished. A server that is newer than this client may give others.
type FinishReason string

const (
	// FinishEOG: the model took an end-of-generation token.
	FinishEOG FinishReason = "EOG"
	// FinishStopString: the text contains a stop string.
	FinishStopString FinishReason = "STOP_STRING"
	// FinishStopID: the model took a stop id.
	FinishStopID FinishReason = "STOP_ID"
	// FinishGrammarExhausted: the constraint is satisfied and nothing can follow.
	FinishGrammarExhausted FinishReason = "GRAMMAR_EXHAUSTED"
	// FinishLength: as many tokens were taken as allowed.
	FinishLength FinishReason = "LENGTH"
)

// Finish is a session's end.
type Finish struct {
	Reason FinishReason
	// StopString is the one that was found, for FinishStopString.
	StopString []byte
	// StopID is the token that ended it, for FinishEOG and FinishStopID; else nil.
	StopID *uint32
	// CutOffset is the length of the final text in bytes, from position 0.
	CutOffset uint64
	// ConstraintIncomplete is true iff the text does not satisfy the constraint.
	ConstraintIncomplete bool
	// SchemaSatisfied tells whether the final text satisfies the session's JSON Schemas as they were given, as an
	// independent validator found; nil for sessions without any, and for an incomplete text.
	SchemaSatisfied *bool
	// SchemaViolation says, if not, where and why, for people.
	SchemaViolation string
}

// Directive says what to do at a position. Exactly one of Mask, Finish and NoTokenAllowed is set.
type Directive struct {
	// Position is the number of tokens accepted so far, the prompt excluded.
	Position uint64
	// Mask names the tokens that may come next.
	Mask sampling.Mask
	// Finish: the session has finished; drop the forward pass.
	Finish *Finish
	// NoTokenAllowed: nothing may come next. The session stays open, for Update, Rollback and Close.
	NoTokenAllowed *NoTokenAllowed
	// Draw is the number in [0, 1) that picks the next token.
	Draw float64
	// SettledBytes is how many bytes of text, from position 0, no later step takes back.
	SettledBytes uint64
	// Adjustments are what the penalties change; nil for nothing.
	Adjustments *sampling.Adjustments
	// Mu is mirostat's state in bits; nil where the config has no mirostat stage.
	Mu *float64
	// AwaitingTrigger tells whether some grammar still sleeps.
	AwaitingTrigger bool
	// AllowsEOG tells whether the text may end here.
	AllowsEOG bool
	// Complete tells whether the text so far satisfies every grammar.
	Complete bool
	// Exhausted tells whether it does, and nothing but the end can follow.
	Exhausted bool
}

// NoTokenAllowed is a dead end.
type NoTokenAllowed struct {
	// Message says what met, for people.
	Message string
}

// Pick gives the next token that this Directive allows, from a row of logits, with the surprisal that the Step reports.
// It fails where there is no mask.
func (d *Directive) Pick(chain *sampling.Chain, logits []float32) (sampling.Picked, error) {
	if d.Mask == nil {
		return sampling.Picked{}, fmt.Errorf("the directive at position %d has no mask: nothing may come next", d.Position)
	}
	mu := math.NaN()
	if d.Mu != nil {
		mu = *d.Mu
	}
	picked, err := chain.Pick(logits, d.Mask, d.Draw, d.Adjustments, mu)
	if err != nil {
		return sampling.Picked{}, fmt.Errorf("position %d: %w", d.Position, err)
	}
	return picked, nil
}

// directiveOf translates a Directive. One without an outcome, or with a mask in an encoding that this client does not
// know, is an error: it must never read as "all allowed".
func directiveOf(message *pb.Directive) (*Directive, error) {
	directive := &Directive{
		Position: message.GetPosition(), Draw: message.GetDraw(), SettledBytes: message.GetSettledBytes(), Mu: message.Mu,
		AwaitingTrigger: message.GetAwaitingTrigger(), AllowsEOG: message.GetAllowsEog(),
		Complete: message.GetComplete(), Exhausted: message.GetExhausted(),
	}
	malformed := func(format string, values ...any) (*Directive, error) {
		what := fmt.Sprintf(format, values...)
		return nil, fmt.Errorf("%w: the directive at position %d: %s", ErrMalformedAnswer, message.GetPosition(), what)
	}
	switch outcome := message.GetOutcome().(type) {
	case *pb.Directive_Mask:
		mask, err := sampling.MaskOf(outcome.Mask.GetDense())
		if err != nil {
			return malformed("%v", err)
		}
		directive.Mask = mask
	case *pb.Directive_Finish:
		directive.Finish = finishOf(outcome.Finish)
	case *pb.Directive_NoTokenAllowed:
		directive.NoTokenAllowed = &NoTokenAllowed{outcome.NoTokenAllowed.GetMessage()}
	default:
		return malformed("no mask, finish or no_token_allowed")
	}
	if directive.Mu != nil && !isFinite(*directive.Mu) {
		return malformed("mu is %v; expected a finite number", *directive.Mu)
	}
	adjustments, problem := adjustmentsOf(message.GetAdjustments())
	if problem != "" {
		return malformed("%s", problem)
	}
	directive.Adjustments = adjustments
	return directive, nil
}

func finishOf(message *pb.Finish) *Finish {
	return &Finish{
		Reason:     FinishReason(enumName(pb.FinishReason_name, int32(message.GetReason()), "FINISH_REASON_")),
		StopString: message.GetStopString(), StopID: message.StopId, CutOffset: message.GetCutOffset(),
		ConstraintIncomplete: message.GetConstraintIncomplete(), SchemaSatisfied: message.SchemaSatisfied,
		SchemaViolation: message.GetSchemaViolation(),
	}
}

// adjustmentsOf gives nil for none, and what is wrong with them in words.
func adjustmentsOf(message *pb.LogitAdjustments) (*sampling.Adjustments, string) {
	ids, scales, offsets := message.GetIds(), message.GetScales(), message.GetOffsets()
	count := len(ids) / 4
	if len(ids)%4 != 0 || len(scales) != 8*count || len(offsets) != 8*count {
		return nil, fmt.Sprintf("adjustments with %d bytes of ids, %d of scales and %d of offsets; expected 4, 8 and 8 a token",
			len(ids), len(scales), len(offsets))
	}
	if count == 0 {
		return nil, ""
	}
	all := &sampling.Adjustments{
		IDs: make([]uint32, count), Scales: make([]float64, count), Offsets: make([]float64, count),
	}
	for i := range count {
		all.IDs[i] = binary.LittleEndian.Uint32(ids[4*i:])
		all.Scales[i] = math.Float64frombits(binary.LittleEndian.Uint64(scales[8*i:]))
		all.Offsets[i] = math.Float64frombits(binary.LittleEndian.Uint64(offsets[8*i:]))
		if !(all.Scales[i] > 0) || !isFinite(all.Scales[i]) || !isFinite(all.Offsets[i]) {
			return nil, fmt.Sprintf("token %d has the scale %v and the offset %v; expected finite ones, the scale above 0",
				all.IDs[i], all.Scales[i], all.Offsets[i])
		}
	}
	return all, ""
}

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }
