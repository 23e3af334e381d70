package sampling

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLeadingIsTheBeginningOfDescending(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values := make([]float64, 1+random.IntN(60))
		for i := range values {
			values[i] = float64(random.IntN(8)) // many ties
		}
		most := 1 + random.IntN(70)
		expected := descending(values)
		expected = expected[:min(most, len(expected))]
		if found := leading(values, int64(most)); !slices.Equal(found, expected) {
			t.Fatalf("the %d leading of %v are %v, expected %v", most, values, found, expected)
		}
	}
}

func BenchmarkRanking(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float64, 131_072)
	for i := range values {
		values[i] = random.NormFloat64()
	}
	b.Run("leading", func(b *testing.B) {
		for b.Loop() {
			leading(values, 40)
		}
	})
	b.Run("descending", func(b *testing.B) {
		for b.Loop() {
			descending(values)
		}
	})
}
