package sampling

import (
	"math"
	"slices"
)

// Stages that look at the shape of the distribution: typical-p, tail-free, and the two splits.

// TypicalP keeps the smallest set whose probability reaches P, those first whose surprisal is closest to the entropy of
// them all (Meister et al. 2023, "Locally Typical Sampling", arXiv 2202.00666).
type TypicalP struct{ P float64 }

// Check fails outside of (0, 1].
func (s TypicalP) Check() error {
	return unless(s.P > 0 && s.P <= 1, "typical-p is %v; expected a number in (0, 1]", s.P)
}

// Apply keeps all for 1, and where the sum misses P by rounding alone.
func (s TypicalP) Apply(c Candidates, _ float64) (Candidates, error) {
	if s.P == 1 {
		return c, nil
	}
	probabilities := probabilitiesOf(c.Logits)
	entropy := 0.0
	for _, probability := range probabilities {
		if probability > 0 {
			entropy -= float64(probability * math.Log(probability))
		}
	}
	nearness := make([]float64, len(probabilities))
	for i, probability := range probabilities {
		nearness[i] = -math.Abs(-math.Log(probability) - entropy)
	}
	order := descending(nearness)
	reached := 0.0
	for i, index := range order {
		if reached += probabilities[index]; reached >= s.P {
			return c.at(order[:i+1]), nil
		}
	}
	return c, nil
}

// TailFree cuts off the tail of the sorted probabilities, where their curve has become flat: of the absolute second
// differences, normalised to sum 1, it keeps the tokens before the first at which the running sum exceeds Z (Phénix and
// Egan 2019, "Tail Free Sampling").
type TailFree struct{ Z float64 }

// Check fails outside of (0, 1].
func (s TailFree) Check() error {
	return unless(s.Z > 0 && s.Z <= 1, "tail-free z is %v; expected a number in (0, 1]", s.Z)
}

// Apply keeps all for 1, and where there are fewer than three.
func (s TailFree) Apply(c Candidates, _ float64) (Candidates, error) {
	if len(c.IDs) < 3 || s.Z == 1 {
		return c, nil
	}
	probabilities := probabilitiesOf(c.Logits)
	order := descending(probabilities)
	bends := make([]float64, len(order)-2)
	for i := range bends {
		first, second, third := probabilities[order[i]], probabilities[order[i+1]], probabilities[order[i+2]]
		bends[i] = math.Abs((third - second) - (second - first))
	}
	total := sum(bends)
	reached := 0.0
	for i, bend := range bends {
		if total > 0 {
			reached += bend / total
		} else {
			reached += 1 / float64(len(bends)) // a straight line bends nowhere, and so everywhere alike
		}
		if reached > s.Z {
			return c.at(order[:max(1, i)]), nil
		}
	}
	return c, nil
}

// SplitP keeps the most probable tokens up to the largest gap between neighbouring probabilities, at least MinKeep and
// at most MaxKeep of them; of equal gaps the first one counts.
type SplitP struct{ MinKeep, MaxKeep uint32 }

// Check fails for bounds that are 0 or cross.
func (s SplitP) Check() error { return checkSplit("split-p", s.MinKeep, s.MaxKeep) }

// Apply keeps all where there are no more than MinKeep.
func (s SplitP) Apply(c Candidates, _ float64) (Candidates, error) {
	return split(c, probabilitiesOf(c.Logits), s.MinKeep, s.MaxKeep), nil
}

// SplitL is SplitP by gaps between neighbouring logits.
type SplitL struct{ MinKeep, MaxKeep uint32 }

// Check fails for bounds that are 0 or cross.
func (s SplitL) Check() error { return checkSplit("split-l", s.MinKeep, s.MaxKeep) }

// Apply keeps all where there are no more than MinKeep.
func (s SplitL) Apply(c Candidates, _ float64) (Candidates, error) {
	return split(c, slices.Clone(c.Logits), s.MinKeep, s.MaxKeep), nil
}

func checkSplit(name string, least, most uint32) error {
	if err := unless(least >= 1, "%s keeps at least %d; expected at least 1", name, least); err != nil {
		return err
	}
	return unless(most >= least, "%s keeps at most %d; expected at least min_keep, %d", name, most, least)
}

func split(c Candidates, values []float64, least, most uint32) Candidates {
	count := int64(len(values))
	if count <= int64(least) {
		return c
	}
	order := leading(values, int64(most)+1)
	kept := int64(least)
	widest := math.Inf(-1)
	for at := int64(least); at <= min(int64(most), count-1); at++ {
		if gap := values[order[at-1]] - values[order[at]]; gap > widest {
			kept, widest = at, gap
		}
	}
	return c.at(order[:kept])
}
