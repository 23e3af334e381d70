package sampling

import "math/bits"

// The constants of Philox 4x64 with ten rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
const (
	philoxMultiplier0 = 0xD2E7470EE14C6C93
	philoxMultiplier1 = 0xCA5A826395121157
	philoxKeyStep0    = 0x9E3779B97F4A7C15
	philoxKeyStep1    = 0xBB67AE8584CAA73B
	philoxRounds      = 10
)

// Draw is the number in [0, 1) that picks the token at a position of a session with this seed: the first double of
// NumPy's Philox(key=seed, counter=[0, position, 0, 0]). A Directive brings it, so that only checks need to compute it.
func Draw(seed, position uint64) float64 {
	// NumPy increments the counter before its first block.
	counter := [4]uint64{1, position, 0, 0}
	key := [2]uint64{seed, 0}
	for range philoxRounds {
		high0, low0 := bits.Mul64(philoxMultiplier0, counter[0])
		high1, low1 := bits.Mul64(philoxMultiplier1, counter[2])
		counter = [4]uint64{high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0}
		key[0] += philoxKeyStep0
		key[1] += philoxKeyStep1
	}
	return float64(counter[0]>>11) * 0x1p-53
}
