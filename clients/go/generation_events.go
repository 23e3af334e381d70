package constraintd

import (
	"fmt"
	"time"

	runnerpb "github.com/constraintd/constraintd/clients/go/gen/constraintd/runner/v1"
)

// Event is what a generation tells: [*Started], [*Delta] or [*Finished].
type Event interface{ isEvent() }

// Started comes first: the session is open and the prompt is in; of a resumed generation, it is this runner's now.
type Started struct {
	// SessionID is the session's at the daemon.
	SessionID SessionID
	// Seed in force.
	Seed uint64
	// PromptTokens is the prompt's length.
	PromptTokens uint64
}

// Delta is what has been generated since the last one.
type Delta struct {
	// Tokens, in order; their text may come in a later Delta.
	Tokens []uint32
	// Text that is newly settled: never taken back, never part of a stop string, never splitting a character.
	Text string
	// Logprobs, one a token, for a generation that was asked for them.
	Logprobs []PositionLogprobs
}

// PositionLogprobs are the log probabilities at one position, after the mask and before penalties and stages.
type PositionLogprobs struct {
	// Taken is the token that was taken.
	Taken TokenLogprob
	// Top are the most probable ones, descending; fewer where fewer are legal.
	Top []TokenLogprob
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	Token   uint32
	Logprob float32
}

// Finished comes last, of a generation that did not fail.
type Finished struct {
	Finish Finish
	Usage  Usage
	// ToolAnswer is the answer taken apart, for a constraint that has tool calls; else nil.
	ToolAnswer *ToolAnswer
}

// Usage is what a generation took.
type Usage struct {
	// PromptTokens is the prompt's length; CompletionTokens counts the terminal one too.
	PromptTokens, CompletionTokens uint64
	// Prefill is the time until the prompt was in, Decode the time from then to the end.
	Prefill, Decode time.Duration
	// MaskWait is how long the decode loop stood still for this session's masks, in all; MaskWaitP50 and MaskWaitP99 are
	// the median and the 99th percentile over its tokens.
	MaskWait, MaskWaitP50, MaskWaitP99 time.Duration
	// WireBytes of this session's Steps and Directives.
	WireBytes uint64
}

// ToolAnswer is an answer taken apart.
type ToolAnswer struct {
	// Content is the text outside of calls.
	Content string
	// Calls, in order.
	Calls []ToolCall
	// Malformed is a call that was cut off, from its beginning on; empty if all are whole.
	Malformed string
}

// ToolCall is one call of a tool.
type ToolCall struct {
	// ID is unique in the answer.
	ID string
	// Name of the function.
	Name string
	// Arguments as the model wrote them: a JSON object.
	Arguments string
}

func (*Started) isEvent()  {}
func (*Delta) isEvent()    {}
func (*Finished) isEvent() {}

// eventOf translates a message; nil for an event that is newer than this client.
func eventOf(message *runnerpb.GenerateResponse) (Event, error) {
	switch event := message.GetEvent().(type) {
	case *runnerpb.GenerateResponse_Started:
		id := event.Started.GetSessionId()
		if len(id) != len(SessionID{}) {
			return nil, fmt.Errorf("%w: a session id of %d bytes", ErrMalformedAnswer, len(id))
		}
		return &Started{SessionID(id), event.Started.GetSeed(), event.Started.GetPromptTokens()}, nil
	case *runnerpb.GenerateResponse_Delta:
		delta := &Delta{Tokens: event.Delta.GetTokenIds(), Text: event.Delta.GetText()}
		for _, position := range event.Delta.GetLogprobs() {
			all := PositionLogprobs{Taken: logprobOf(position.GetTaken())}
			for _, token := range position.GetTop() {
				all.Top = append(all.Top, logprobOf(token))
			}
			delta.Logprobs = append(delta.Logprobs, all)
		}
		return delta, nil
	case *runnerpb.GenerateResponse_Finished:
		finished := &Finished{Finish: *finishOf(event.Finished.GetFinish()), Usage: usageOf(event.Finished.GetUsage())}
		if answer := event.Finished.GetToolAnswer(); answer != nil {
			finished.ToolAnswer = &ToolAnswer{Content: answer.GetContent(), Malformed: answer.GetMalformed()}
			for _, call := range answer.GetCalls() {
				made := ToolCall{call.GetId(), call.GetName(), call.GetArguments()}
				finished.ToolAnswer.Calls = append(finished.ToolAnswer.Calls, made)
			}
		}
		return finished, nil
	}
	return nil, nil
}

func logprobOf(message *runnerpb.TokenLogprob) TokenLogprob {
	return TokenLogprob{message.GetTokenId(), message.GetLogprob()}
}

func usageOf(message *runnerpb.Usage) Usage {
	return Usage{
		PromptTokens: message.GetPromptTokens(), CompletionTokens: message.GetCompletionTokens(),
		Prefill: time.Duration(message.GetPrefillUs()) * time.Microsecond,
		Decode:  time.Duration(message.GetDecodeUs()) * time.Microsecond,
		// Fractions of microseconds, which a Duration holds.
		MaskWait:    time.Duration(message.GetMaskWaitUs()) * time.Microsecond,
		MaskWaitP50: time.Duration(message.GetMaskWaitUsP50() * float64(time.Microsecond)),
		MaskWaitP99: time.Duration(message.GetMaskWaitUsP99() * float64(time.Microsecond)),
		WireBytes:   message.GetWireBytes(),
	}
}
