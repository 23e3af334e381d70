package sampling

import (
	"fmt"
	"math"
)

// Mirostat: a cut that holds the surprisal of the picked tokens near a target (Basu et al. 2021, "Mirostat: A Neural
// Text Decoding Algorithm that Directly Controls Perplexity", arXiv 2007.14966). The daemon keeps mu, which the
// reported surprisals move; target and learning rate are its alone.

// MirostatV1 keeps as many of the most probable tokens as Zipf's law says (the paper's algorithm 1). The law's exponent
// is estimated from the first MaxKeep tokens, and no more than those are kept.
type MirostatV1 struct{ MaxKeep uint32 }

// Check fails below 2.
func (s MirostatV1) Check() error {
	return unless(s.MaxKeep >= 2, "mirostat keeps at most %d; expected at least 2", s.MaxKeep)
}

// Apply fails for a mu that is not finite.
func (s MirostatV1) Apply(c Candidates, mu float64) (Candidates, error) {
	if err := checkMu(mu); err != nil {
		return Candidates{}, err
	}
	count := len(c.IDs)
	if count == 1 {
		return c, nil
	}
	probabilities := probabilitiesOf(c.Logits)
	order := leading(probabilities, int64(s.MaxKeep))
	wanted := wantedByZipf(zipfExponent(probabilities, order), mu, float64(count))
	// An estimate that makes no sense cuts nothing.
	if math.IsNaN(wanted) || wanted >= float64(len(order)) {
		return c.at(order), nil
	}
	return c.at(order[:max(int(wanted), 1)]), nil
}

// MirostatV2 keeps the most probable tokens whose surprisal is at most mu, MaxKeep of them at most (algorithm 2).
type MirostatV2 struct{ MaxKeep uint32 }

// Check fails below 1.
func (s MirostatV2) Check() error {
	return unless(s.MaxKeep >= 1, "mirostat keeps at most %d; expected at least 1", s.MaxKeep)
}

// Apply always keeps the most probable one; fails for a mu that is not finite.
func (s MirostatV2) Apply(c Candidates, mu float64) (Candidates, error) {
	if err := checkMu(mu); err != nil {
		return Candidates{}, err
	}
	probabilities := probabilitiesOf(c.Logits)
	order := leading(probabilities, int64(s.MaxKeep))
	kept := 1
	for kept < len(order) && -math.Log2(probabilities[order[kept]]) <= mu {
		kept++
	}
	return c.at(order[:kept]), nil
}

func checkMu(mu float64) error {
	if math.IsNaN(mu) || math.IsInf(mu, 0) {
		return fmt.Errorf("mu is %v; expected a finite number for mirostat", mu)
	}
	return nil
}

// zipfExponent estimates Zipf's exponent, by least squares on the logarithms of neighbours' ratios, which end at the
// first probability of 0. NaN where there is no ratio.
func zipfExponent(probabilities []float64, order []int) float64 {
	products, squares := 0.0, 0.0
	for i := 0; i+1 < len(order) && probabilities[order[i+1]] > 0; i++ {
		rank := float64(i + 1)
		t := math.Log((rank + 1) / rank)
		b := math.Log(probabilities[order[i]] / probabilities[order[i+1]])
		products += float64(t * b)
		squares += float64(t * t)
	}
	return products / squares
}

// wantedByZipf is how many of count tokens have surprisals of mu and less; infinity or NaN where that is undefined.
func wantedByZipf(exponent, mu, count float64) float64 {
	if !(exponent > 0 && exponent <= math.MaxFloat64) {
		return math.Inf(1)
	}
	epsilon := exponent - 1
	inner := math.Exp2(mu) / math.Log(count)
	if epsilon != 0 {
		inner = epsilon * math.Exp2(mu) / (1 - math.Pow(count, -epsilon))
	}
	return math.Pow(inner, 1/exponent)
}
