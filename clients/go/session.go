package constraintd

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// SessionID is a session's id: 16 random bytes that whoever opens it chooses.
type SessionID [16]byte

// NewSessionID is a random one.
func NewSessionID() SessionID { return SessionID(newID()) }

// ParseSessionID reads 32 hex digits.
func ParseSessionID(text string) (SessionID, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(SessionID{}) {
		return SessionID{}, fmt.Errorf("session id %q; expected 32 hex digits", text)
	}
	return SessionID(raw), nil
}

// String gives 32 hex digits.
func (id SessionID) String() string { return hex.EncodeToString(id[:]) }

// orNew is the id, or a random one for the zero id.
func (id SessionID) orNew() SessionID {
	if id == (SessionID{}) {
		return NewSessionID()
	}
	return id
}

// RequestID makes a call that changes a session one that may be repeated: a repeat under the same id gets the first
// answer. The zero value is a random one for each call.
type RequestID [16]byte

// NewRequestID is a random one.
func NewRequestID() RequestID { return RequestID(newID()) }

func (id RequestID) orNew() []byte {
	if id == (RequestID{}) {
		id = NewRequestID()
	}
	return id[:]
}

// Session is an open session as this client last saw it. One goroutine at a time may drive it: the calls that take it,
// and [DecodeStream.Take], move it on.
type Session struct {
	// ID names it everywhere.
	ID SessionID
	// Epoch names this owner's view of it; goes into every Step.
	Epoch uint64
	// Seed is the one in force.
	Seed uint64
	// Sampler is the config in force: defaults filled in, a preset spelled out, the seed set.
	Sampler *SamplerConfig
	// Directive is the latest answer: what to do at its position.
	Directive *Directive
}

// Position is the number of tokens accepted so far, the prompt excluded; the next Step's position.
func (s *Session) Position() uint64 { return s.Directive.Position }

// Report is what a Step tells: tokens that a session accepted from its position on.
type Report struct {
	Session *Session
	// Tokens, at least one.
	Tokens []uint32
	// Surprisals, one a token: -log2 of its probability after all stages, in bits.
	Surprisals []float32
	// Passes are the lengths in tokens of the forward passes since the last Step, the prompt's first. Default: not
	// reported.
	Passes []uint32
}

func (r *Report) step() (*pb.Step, error) {
	if len(r.Tokens) != len(r.Surprisals) {
		return nil, fmt.Errorf("session %s: %d tokens but %d surprisals; expected one a token", r.Session.ID, len(r.Tokens),
			len(r.Surprisals))
	}
	// Copies: a stream may have to send it again when the caller has filled its slices anew.
	return &pb.Step{
		SessionId: slices.Clone(r.Session.ID[:]), Epoch: r.Session.Epoch, Position: r.Session.Position(),
		Tokens: slices.Clone(r.Tokens), Surprisals: slices.Clone(r.Surprisals), Passes: slices.Clone(r.Passes),
	}, nil
}

func newID() []byte {
	id := make([]byte, 16)
	rand.Read(id)
	return id
}
