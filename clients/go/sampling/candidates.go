package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

var (
	// ErrBrokenLogits is wrapped for a row with NaN or +inf in it, or nothing but -inf: the forward pass went wrong.
	ErrBrokenLogits = errors.New("broken logits")
	// ErrNothingLeft is wrapped where the mask allows tokens but each of them has, or gets by penalties, the logit -inf.
	ErrNothingLeft = errors.New("nothing left")
)

// Candidates are the tokens still in play: at least one, ids ascending, and a finite logit for each.
type Candidates struct {
	IDs    []uint32
	Logits []float64
}

// NewCandidates gathers the allowed tokens of a row, but for those whose logit is -inf. Forbidden tokens count only in
// that NaN or +inf anywhere in the row means that nothing in it can be trusted.
func NewCandidates(logits []float32, mask Mask) (Candidates, error) {
	if err := mask.fits(logits); err != nil {
		return Candidates{}, err
	}
	possible := false
	for id, logit := range logits {
		if logit != logit || logit > math.MaxFloat32 {
			return Candidates{}, fmt.Errorf("%w: the logit of token %d is %v", ErrBrokenLogits, id, logit)
		}
		possible = possible || logit > minusInfinity
	}
	if !possible {
		return Candidates{}, fmt.Errorf("%w: all %d of them are -inf", ErrBrokenLogits, len(logits))
	}
	ids := mask.IDs()
	kept := Candidates{IDs: ids[:0], Logits: make([]float64, 0, len(ids))}
	for _, id := range ids {
		if int(id) < len(logits) && logits[id] > minusInfinity {
			kept.IDs = append(kept.IDs, id)
			kept.Logits = append(kept.Logits, float64(logits[id]))
		}
	}
	if len(kept.IDs) == 0 {
		return Candidates{}, fmt.Errorf("%w: every token that the mask allows has the logit -inf", ErrNothingLeft)
	}
	return kept, nil
}

// Adjustments are changes to single logits. A scale s acts on logit l as l > 0 ? l / s : l * s; then the offset is
// added.
type Adjustments struct {
	// IDs, each once; those of tokens that are no candidates change nothing.
	IDs []uint32
	// Scales, one an id, finite and > 0.
	Scales []float64
	// Offsets, one an id, finite.
	Offsets []float64
}

// Apply gives the candidates with changed logits. What falls to -inf drops out; fails if nothing stays.
func (a *Adjustments) Apply(given Candidates) (Candidates, error) {
	if a == nil || len(a.IDs) == 0 {
		return given, nil
	}
	changed := slices.Clone(given.Logits)
	for i, id := range a.IDs {
		at, found := slices.BinarySearch(given.IDs, id)
		if !found {
			continue
		}
		logit := changed[at]
		// The conversions keep a compiler from fusing multiplication and addition, which would round once instead of twice.
		if logit > 0 {
			logit = float64(logit / a.Scales[i])
		} else {
			logit = float64(logit * a.Scales[i])
		}
		// Upwards, float64 ends at its largest finite number.
		changed[at] = min(logit+a.Offsets[i], math.MaxFloat64)
	}
	left := Candidates{given.IDs, changed}.keep(func(i int) bool { return !math.IsInf(changed[i], -1) })
	if len(left.IDs) == 0 {
		return Candidates{}, fmt.Errorf("%w: penalties or logit bias leave every allowed token at -inf", ErrNothingLeft)
	}
	return left, nil
}

// keep gives those whose index is wanted.
func (c Candidates) keep(wanted func(i int) bool) Candidates {
	var kept Candidates
	for i, id := range c.IDs {
		if wanted(i) {
			kept.IDs = append(kept.IDs, id)
			kept.Logits = append(kept.Logits, c.Logits[i])
		}
	}
	return kept
}

// at gives those at these indices, by ascending id again.
func (c Candidates) at(indices []int) Candidates {
	ordered := slices.Sorted(slices.Values(indices))
	kept := Candidates{IDs: make([]uint32, len(ordered)), Logits: make([]float64, len(ordered))}
	for i, index := range ordered {
		kept.IDs[i], kept.Logits[i] = c.IDs[index], c.Logits[index]
	}
	return kept
}
