package sampling_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/constraintd/constraintd/clients/go/sampling"
)

var (
	inf  = float32(math.Inf(1))
	none = float32(math.Inf(-1))
)

func TestAMaskForbidsWhatItDoesNotName(t *testing.T) {
	// Words in wire order: token 0, token 33, all of the third word, and bits past the width of 100.
	mask, err := sampling.MaskOf([]byte{1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
	if err != nil {
		t.Fatal(err)
	}
	logits := make([]float32, 100)
	for i := range logits {
		logits[i] = float32(i)
	}
	logits[70] = none
	if err := mask.Apply(logits); err != nil {
		t.Fatal(err)
	}
	for i, logit := range logits {
		allowed := i == 0 || i == 33 || i >= 64
		if allowed && i != 70 && logit != float32(i) || (!allowed || i == 70) && logit != none {
			t.Errorf("logit %d is %v", i, logit)
		}
		if mask.Allows(uint32(i)) != allowed {
			t.Errorf("Allows(%d) is %v", i, !allowed)
		}
	}
	if mask.Allows(128) || mask.Allows(math.MaxUint32) {
		t.Error("ids past the mask are allowed")
	}
	if ids := mask.IDs(); len(ids) != 66 || ids[0] != 0 || ids[1] != 33 || ids[2] != 64 || ids[65] != 127 {
		t.Errorf("ids %v", ids)
	}
}

func TestAMaskOfAnotherWidthIsRefusedAndChangesNothing(t *testing.T) {
	for _, words := range []int{0, 1, 3} {
		logits := []float32{1: 5, 40: 6}
		if err := make(sampling.Mask, words).Apply(logits); err == nil || logits[1] != 5 {
			t.Errorf("%d words for 41 logits: %v, %v", words, err, logits[1])
		}
	}
	if err := (sampling.Mask{}).Apply(nil); err == nil {
		t.Error("no mask for no logits was taken")
	}
	for _, size := range []int{0, 1, 5} {
		if _, err := sampling.MaskOf(make([]byte, size)); err == nil {
			t.Errorf("%d bytes were taken", size)
		}
	}
}

func TestBrokenLogitsAreNeverSampled(t *testing.T) {
	nan := float32(math.NaN())
	chain, err := sampling.NewChain()
	if err != nil {
		t.Fatal(err)
	}
	for name, each := range map[string]struct {
		logits []float32
		mask   sampling.Mask
		want   error
	}{
		"NaN at a forbidden token": {[]float32{1, nan}, sampling.Mask{1}, sampling.ErrBrokenLogits},
		"infinity":                 {[]float32{inf, 1}, sampling.Mask{3}, sampling.ErrBrokenLogits},
		"nothing but -inf":         {[]float32{none, none}, sampling.Mask{3}, sampling.ErrBrokenLogits},
		"-inf where it is allowed": {[]float32{none, 1}, sampling.Mask{1}, sampling.ErrNothingLeft},
		"an empty mask":            {[]float32{1, 1}, sampling.Mask{0}, sampling.ErrNothingLeft},
		"bits past the width":      {[]float32{1, 1}, sampling.Mask{12}, sampling.ErrNothingLeft},
	} {
		if picked, err := chain.Pick(each.logits, each.mask, 0.5, nil, 0); !errors.Is(err, each.want) {
			t.Errorf("%s: %+v, %v", name, picked, err)
		}
	}
	for _, draw := range []float64{-0.1, 1, math.NaN(), math.Inf(1)} {
		if _, err := chain.Pick([]float32{1, 1}, sampling.Mask{3}, draw, nil, 0); err == nil {
			t.Errorf("the draw %v was taken", draw)
		}
	}
}

func TestStagesOutOfRangeAndBehindTheEndAreRefused(t *testing.T) {
	nan := math.NaN()
	for _, stage := range []sampling.Stage{
		sampling.Temperature{-1}, sampling.Temperature{nan}, sampling.Temperature{math.Inf(1)}, sampling.TopK{0},
		sampling.TopP{0}, sampling.TopP{1.1}, sampling.TopP{nan}, sampling.MinP{-0.1}, sampling.MinP{nan},
		sampling.TypicalP{0}, sampling.TailFree{nan}, sampling.SplitP{0, 1}, sampling.SplitL{3, 2},
		sampling.MirostatV1{1}, sampling.MirostatV2{0}, sampling.LogitBias{}, sampling.LogitBias{[]uint32{1}, nil},
		sampling.LogitBias{[]uint32{1, 2, 1}, []float64{0, 0, 0}}, sampling.LogitBias{[]uint32{1}, []float64{nan}},
	} {
		if _, err := sampling.NewChain(stage); err == nil {
			t.Errorf("%T%+v was taken", stage, stage)
		}
	}
	for _, end := range []sampling.Stage{sampling.Greedy{}, sampling.Temperature{0}} {
		if _, err := sampling.NewChain(end, sampling.TopK{1}); err == nil {
			t.Errorf("a stage behind %T was taken", end)
		}
	}
	chain, err := sampling.NewChain(sampling.MirostatV2{5})
	if err != nil || !chain.NeedsMu() {
		t.Fatal(err)
	}
	if _, err := chain.Pick([]float32{1, 1}, sampling.Mask{3}, 0.5, nil, nan); err == nil {
		t.Error("mirostat went on without mu")
	}
}

// wide is a row as a large model's, deterministic, and a mask of most of it.
func wide() ([]float32, sampling.Mask) {
	logits, mask := make([]float32, 131_072), make(sampling.Mask, 4096)
	state := uint64(1)
	for i := range logits {
		state = state*6364136223846793005 + 1442695040888963407
		logits[i] = float32(state>>40) / (1 << 22)
		mask[i/32] |= uint32(state>>33&7+7) >> 3 << (i % 32)
	}
	return logits, mask
}

func TestWideRowsKeepTheSameAsSortingThem(t *testing.T) {
	logits, mask := wide()
	for _, k := range []uint32{1, 40, 600, 131_071} {
		chain, err := sampling.NewChain(sampling.TopK{k})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := chain.Keep(logits, mask, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ids := mask.IDs()
		slices.SortStableFunc(ids, func(a, b uint32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		expected := slices.Sorted(slices.Values(ids[:min(int(k), len(ids))]))
		if !slices.Equal(kept.IDs, expected) {
			t.Errorf("top %d keeps %d others", k, len(kept.IDs))
		}
	}
}

func BenchmarkApply(b *testing.B) {
	logits, mask := wide()
	for b.Loop() {
		if err := mask.Apply(logits); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	logits, mask := wide()
	for name, stages := range map[string][]sampling.Stage{
		"greedy": {sampling.Greedy{}}, "top_k": {sampling.TopK{40}, sampling.TopP{0.95}, sampling.Temperature{0.8}},
		"draw": nil, "top_p": {sampling.TopP{0.9}},
	} {
		b.Run(name, func(b *testing.B) {
			chain, err := sampling.NewChain(stages...)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := chain.Pick(logits, mask, 0.5, nil, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
