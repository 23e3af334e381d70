package main

// FNV-1a, 64 bits, over the tokens' little-endian uint32 bytes.
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// tokenHash is the hash of all tokens before: what the made-up model remembers.
type tokenHash uint64

func (h tokenHash) after(tokens ...uint32) tokenHash {
	for _, token := range tokens {
		for shift := 0; shift < 32; shift += 8 {
			h = (h ^ tokenHash(token>>shift&0xff)) * fnvPrime
		}
	}
	return h
}

// fill writes the logits behind those tokens, in [-6, 6).
func (h tokenHash) fill(logits []float32) {
	for i := range logits {
		fraction := float64(splitmix64(uint64(h)+uint64(i))>>40) / (1 << 24)
		// The conversion keeps a compiler from fusing the two operations, which would round otherwise.
		logits[i] = float32(float64(fraction*12.0) - 6.0)
	}
}

func splitmix64(x uint64) uint64 {
	z := x + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
