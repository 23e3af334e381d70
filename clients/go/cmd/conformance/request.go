package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

// request has the fields of all operations; each looks at its own.
type request struct {
	Op string

	Client, Runner, Stream, Session, Of, Generation string

	Targets   []string
	TimeoutMs *float64 `json:"timeout_ms"`
	Token     string
	TLS       *struct{ CA, Cert, Key string }

	VocabularyID string            `json:"vocabulary_id"`
	Tokens       json.RawMessage   // hex strings of a table, or ids of a step
	Special      map[uint32]string // spellings by id
	EOGIDs       []uint32          `json:"eog_ids"`
	LogitsWidth  uint32            `json:"logits_width"`
	Spell        []uint32

	SessionID    *string `json:"session_id"`
	Grammar      json.RawMessage
	Constraint   json.RawMessage
	Sampler      json.RawMessage
	PromptTokens []uint32 `json:"prompt_tokens"`
	Surprisals   []float32
	Passes       []uint32
	Steps        []struct {
		Session    string
		Tokens     []uint32
		Surprisals []float32
	}
	Epoch      *uint64 `json:",string"`
	Position   *uint64
	ToPosition uint64    `json:"to_position"`
	Seed       *uint64   `json:",string"`
	RequestID  *string   `json:"request_id"`
	NewTurn    *[]uint32 `json:"new_turn"`
	Envelope   hexBytes

	Logits      []number
	Mask        hexBytes
	Stages      []json.RawMessage
	Draw        float64
	Adjustments *sampling.Adjustments
	Mu          *float64

	Prompt        json.RawMessage
	Logprobs      *uint32
	Resumable     bool
	Count         *int
	SeenTokens    uint64 `json:"seen_tokens"`
	SeenTextBytes uint64 `json:"seen_text_bytes"`
	Exact         bool
}

// hexBytes are hex digits.
type hexBytes []byte

func (b *hexBytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

func (b hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b), nil }

// number is a JSON number, or "-inf".
type number float32

func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == `"-inf"` {
		*n = number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(text, (*float32)(n))
}

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), -1) {
		return []byte(`"-inf"`), nil
	}
	return json.Marshal(float32(n))
}

func (r *request) tokens() (ids []uint32, err error) {
	err = json.Unmarshal(r.Tokens, &ids)
	return ids, err
}

func (r *request) timeout(otherwise time.Duration) time.Duration {
	if r.TimeoutMs == nil {
		return otherwise
	}
	return time.Duration(*r.TimeoutMs * float64(time.Millisecond))
}

func (r *request) id() (constraintd.SessionID, error) {
	if r.SessionID == nil {
		return constraintd.SessionID{}, nil
	}
	return constraintd.ParseSessionID(*r.SessionID)
}

func (r *request) requestID() (constraintd.RequestID, error) {
	if r.RequestID == nil {
		return constraintd.RequestID{}, nil
	}
	raw, err := hex.DecodeString(*r.RequestID)
	if err != nil || len(raw) != 16 {
		return constraintd.RequestID{}, fmt.Errorf("request id %q; expected 32 hex digits", *r.RequestID)
	}
	return constraintd.RequestID(raw), nil
}

// constraint is nil where the request has none.
func (r *request) constraint() (constraintd.Constraint, error) {
	if r.Constraint == nil {
		return nil, nil
	}
	message := &pb.Constraint{}
	err := protojson.Unmarshal(r.Constraint, message)
	return constraintd.ConstraintOf(message), err
}

// sampler is nil where the request has none.
func (r *request) sampler() (*constraintd.SamplerConfig, error) {
	if r.Sampler == nil {
		return nil, nil
	}
	return parsed(r.Sampler, &constraintd.SamplerConfig{})
}

func parsed[M proto.Message](text json.RawMessage, message M) (M, error) {
	return message, protojson.Unmarshal(text, message)
}
