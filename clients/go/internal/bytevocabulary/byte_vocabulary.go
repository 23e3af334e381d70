// Package bytevocabulary is the vocabulary of tests and of the toy runner: one token a byte.
package bytevocabulary

import (
	"github.com/constraintd/constraintd/clients/go"
)

// The byte vocabulary of the repository's own tests, under the same id: ids 0 to 255 are the bytes, EOG and SecondEOG
// end the text, Tool is a special token that spells "<tool>", Hole is none, ToolText is the text "<tool>", AB is "ab"
// and SecondA a second "a". The logits row is wider than that.
const (
	EOG uint32 = 256 + iota
	Tool
	SecondEOG
	Hole
	ToolText
	AB
	SecondA

	Width = 300
)

// Table is its token table.
func Table() constraintd.TokenTable {
	table := constraintd.TokenTable{
		Tokens:  make([][]byte, SecondA+1),
		Special: map[uint32]string{EOG: "</s>", Tool: "<tool>", SecondEOG: "<|end|>"},
	}
	for value := range 256 {
		table.Tokens[value] = []byte{byte(value)}
	}
	table.Tokens[ToolText], table.Tokens[AB], table.Tokens[SecondA] = []byte("<tool>"), []byte("ab"), []byte("a")
	return table
}

// EOGIDs are its ends.
func EOGIDs() []uint32 { return []uint32{EOG, SecondEOG} }
