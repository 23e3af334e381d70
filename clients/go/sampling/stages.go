package sampling

import (
	"fmt"
	"math"
	"slices"
)

// Stage is one step between mask and pick. mu is mirostat's state, in bits; other stages don't look at it.
type Stage interface {
	// Apply gives the candidates that stay, at least one, and changes none that it was given.
	Apply(candidates Candidates, mu float64) (Candidates, error)
	// Check tells what is wrong with the stage's own numbers.
	Check() error
}

// Greedy takes the highest logit. It ends the chain.
type Greedy struct{}

// Check never fails.
func (Greedy) Check() error { return nil }

// Apply keeps one.
func (Greedy) Apply(c Candidates, _ float64) (Candidates, error) {
	return c.at([]int{highestOf(c.Logits)}), nil
}

// Temperature divides the logits; 0 is greedy and ends the chain.
type Temperature struct{ Temperature float64 }

// Check fails for what is not finite and >= 0.
func (s Temperature) Check() error {
	return unless(s.Temperature >= 0 && s.Temperature <= math.MaxFloat64, "temperature is %v; expected a finite number >= 0",
		s.Temperature)
}

// Apply gives scaled logits, the highest at 0. It is subtracted first: that changes no probability, and a tiny
// temperature then gives -inf for the others, who drop out, where dividing alone would give NaN.
func (s Temperature) Apply(c Candidates, _ float64) (Candidates, error) {
	if s.Temperature == 0 {
		return Greedy{}.Apply(c, 0)
	}
	highest := c.Logits[highestOf(c.Logits)]
	scaled := make([]float64, len(c.Logits))
	for i, logit := range c.Logits {
		scaled[i] = (logit - highest) / s.Temperature
	}
	return Candidates{c.IDs, scaled}.keep(func(i int) bool { return !math.IsInf(scaled[i], -1) }), nil
}

// TopK keeps the K highest logits (Fan et al. 2018, arXiv 1805.04833).
type TopK struct{ K uint32 }

// Check fails for 0.
func (s TopK) Check() error { return unless(s.K >= 1, "top-k is %d; expected at least 1", s.K) }

// Apply keeps all where there are no more than K.
func (s TopK) Apply(c Candidates, _ float64) (Candidates, error) {
	if int64(s.K) >= int64(len(c.IDs)) {
		return c, nil
	}
	return c.at(leading(c.Logits, int64(s.K))), nil
}

// TopP keeps the smallest set of most probable tokens whose probability reaches P, the one that crosses it included
// (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
type TopP struct{ P float64 }

// Check fails outside of (0, 1].
func (s TopP) Check() error {
	return unless(s.P > 0 && s.P <= 1, "top-p is %v; expected a number in (0, 1]", s.P)
}

// Apply keeps all for 1, also those too improbable to change the sum.
func (s TopP) Apply(c Candidates, _ float64) (Candidates, error) {
	if s.P == 1 {
		return c, nil
	}
	weights := weightsOf(c.Logits)
	// Nearly always the first few reach P: finding them takes a fraction of the time of sorting all.
	for _, count := range []int64{512, int64(len(weights))} {
		order := leading(weights, count)
		threshold := s.P * totalOf(weights, order)
		reached := 0.0
		for i, index := range order {
			if reached += weights[index]; reached >= threshold {
				return c.at(order[:i+1]), nil
			}
		}
	}
	return c, nil
}

// totalOf sums in the order of the ranking where it has all the weights, so that the sum is exactly what the running
// sum ends with.
func totalOf(weights []float64, order []int) float64 {
	if len(order) < len(weights) {
		return sum(weights)
	}
	total := 0.0
	for _, index := range order {
		total += weights[index]
	}
	return total
}

// MinP keeps tokens at least P times as probable as the most probable one (Nguyen et al. 2024, arXiv 2407.01082).
type MinP struct{ P float64 }

// Check fails outside of [0, 1].
func (s MinP) Check() error {
	return unless(s.P >= 0 && s.P <= 1, "min-p is %v; expected a number in [0, 1]", s.P)
}

// Apply always keeps the most probable.
func (s MinP) Apply(c Candidates, _ float64) (Candidates, error) {
	weights := weightsOf(c.Logits)
	return c.keep(func(i int) bool { return weights[i] >= s.P }), nil
}

// LogitBias adds to single logits.
type LogitBias struct {
	IDs    []uint32
	Biases []float64
}

// Check fails for no ids, for one that stands twice, and for biases that are not finite or not one an id.
func (s LogitBias) Check() error {
	if len(s.IDs) == 0 || len(s.IDs) != len(s.Biases) {
		return fmt.Errorf("%d ids and %d biases; expected one bias an id, at least one", len(s.IDs), len(s.Biases))
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(s.IDs))); len(distinct) != len(s.IDs) {
		return fmt.Errorf("an id stands twice in the logit bias; expected each once")
	}
	for _, bias := range s.Biases {
		if math.IsNaN(bias) || math.IsInf(bias, 0) {
			return fmt.Errorf("a logit bias is %v; expected finite numbers", bias)
		}
	}
	return nil
}

// Apply fails where every candidate falls to -inf, which takes biases near the limit of float64.
func (s LogitBias) Apply(c Candidates, _ float64) (Candidates, error) {
	scales := make([]float64, len(s.IDs))
	for i := range scales {
		scales[i] = 1
	}
	return (&Adjustments{s.IDs, scales, s.Biases}).Apply(c)
}

func unless(good bool, format string, values ...any) error {
	if good {
		return nil
	}
	return fmt.Errorf(format, values...)
}
