// Package sampling turns a row of logits and a mask into a token, by the rule that every constraintd runner follows:
// the mask first, then the daemon's changes to single logits, then the stages of the sampler config in their order,
// then the pick by draw (or greedy). It computes in float64, breaks every tie by the lowest id, and knows no gRPC.
package sampling

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

var minusInfinity = float32(math.Inf(-1))

const minusInfinityBits = 0xFF800000

// Mask names the tokens that may come next: bit i of word w is token 32*w + i.
type Mask []uint32

// MaskOf reads a mask as it is sent: little-endian words.
func MaskOf(dense []byte) (Mask, error) {
	if len(dense) == 0 || len(dense)%4 != 0 {
		return nil, fmt.Errorf("the mask has %d bytes, which is not a whole, positive number of 32-bit words", len(dense))
	}
	mask := make(Mask, len(dense)/4)
	for i := range mask {
		mask[i] = binary.LittleEndian.Uint32(dense[4*i:])
	}
	return mask, nil
}

// Allows tells whether a token is legal; ids past the mask are not.
func (m Mask) Allows(id uint32) bool {
	return uint64(id) < 32*uint64(len(m)) && m[id/32]>>(id%32)&1 == 1
}

// IDs are the legal tokens, ascending.
func (m Mask) IDs() []uint32 {
	count := 0
	for _, word := range m {
		count += bits.OnesCount32(word)
	}
	ids := make([]uint32, 0, count)
	for i, word := range m {
		for ; word != 0; word &= word - 1 {
			ids = append(ids, uint32(32*i+bits.TrailingZeros32(word)))
		}
	}
	return ids
}

// Apply sets the logits of forbidden tokens to -inf, in place, and changes nothing else. Fails, and changes nothing, if
// the mask is not as many words as the logits need.
func (m Mask) Apply(logits []float32) error {
	if err := m.fits(logits); err != nil {
		return err
	}
	for i, word := range m {
		row := logits[32*i : min(32*i+32, len(logits))]
		switch word {
		case math.MaxUint32: // half of all masks are nearly full, half nearly empty: whole words are the usual case
		case 0:
			for j := range row {
				row[j] = minusInfinity
			}
		default:
			for j, logit := range row {
				keep := -(word >> j & 1) // all bits for a legal token, none for another: no branch to mispredict
				row[j] = math.Float32frombits(math.Float32bits(logit)&keep | minusInfinityBits&^keep)
			}
		}
	}
	return nil
}

func (m Mask) fits(logits []float32) error {
	if needed := (len(logits) + 31) / 32; len(m) != needed || needed == 0 {
		return fmt.Errorf("a mask of %d words and %d logits don't belong together; expected %d words", len(m),
			len(logits), needed)
	}
	return nil
}
