package sampling

import (
	"fmt"
	"math"
)

// Picked is a picked token.
type Picked struct {
	// Token is its id.
	Token uint32
	// Surprisal is -log2 of its probability after all stages, in bits, as a Step reports it: finite, >= 0; 0 for greedy.
	Surprisal float32
}

// Chain is what happens to a row of logits after mask and adjustments: stages in order, then the pick.
type Chain struct {
	stages []Stage
}

// NewChain puts stages in order. Fails, naming the stage's index, for numbers out of range, and for stages that follow
// one that ends the chain.
func NewChain(stages ...Stage) (*Chain, error) {
	for i, stage := range stages {
		if err := stage.Check(); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		if endsChain(stage) && i+1 < len(stages) {
			return nil, fmt.Errorf("stage %d is greedy, which ends the chain, but another follows", i)
		}
	}
	return &Chain{stages: append([]Stage(nil), stages...)}, nil
}

// NeedsMu tells whether a stage looks at mu.
func (c *Chain) NeedsMu() bool {
	for _, stage := range c.stages {
		switch stage.(type) {
		case MirostatV1, MirostatV2:
			return true
		}
	}
	return false
}

// Keep gives what is in play after mask, adjustments (nil: none) and all stages.
func (c *Chain) Keep(logits []float32, mask Mask, adjustments *Adjustments, mu float64) (Candidates, error) {
	kept, err := NewCandidates(logits, mask)
	if err == nil {
		kept, err = adjustments.Apply(kept)
	}
	for _, stage := range c.stages {
		if err != nil {
			return Candidates{}, err
		}
		kept, err = stage.Apply(kept, mu)
	}
	return kept, err
}

// Pick gives a token that the mask allows. draw is in [0, 1); mu matters for mirostat alone.
func (c *Chain) Pick(logits []float32, mask Mask, draw float64, adjustments *Adjustments, mu float64) (Picked, error) {
	kept, err := c.Keep(logits, mask, adjustments, mu)
	if err != nil {
		return Picked{}, err
	}
	return PickByDraw(kept, draw)
}

func endsChain(stage Stage) bool {
	switch stage := stage.(type) {
	case Greedy:
		return true
	case Temperature:
		return stage.Temperature == 0
	}
	return false
}

// PickByDraw gives the first id, ascending, at which the running sum of weights exceeds draw times their total. Such an
// id always exists: draw * total is below the total, also rounded. A token whose weight underflows to 0 is never
// picked.
func PickByDraw(candidates Candidates, draw float64) (Picked, error) {
	if !(draw >= 0 && draw < 1) {
		return Picked{}, fmt.Errorf("the draw is %v; expected a number in [0, 1)", draw)
	}
	weights := weightsOf(candidates.Logits)
	total := sum(weights)
	threshold := draw * total
	reached := 0.0
	for i, weight := range weights {
		if reached += weight; reached > threshold {
			// A difference of logarithms, since the quotient of a subnormal weight would be 0.
			surprisal := max(0, math.Log2(total)-math.Log2(weight))
			return Picked{candidates.IDs[i], float32(surprisal)}, nil
		}
	}
	return Picked{}, fmt.Errorf("%w: no candidates", ErrNothingLeft)
}
