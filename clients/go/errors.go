package constraintd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// errorDomain tells our ErrorInfo from that of proxies and of gRPC itself.
const errorDomain = "constraintd"

var (
	// ErrMalformedAnswer is wrapped by errors about an answer that can't be used, such as a Directive without a mask, a
	// finish or no_token_allowed. It never reads as "all allowed".
	ErrMalformedAnswer = errors.New("malformed answer")
	// ErrIncompleteGeneration is wrapped where a stream of a generation ended without Finished: its text is a fragment.
	ErrIncompleteGeneration = errors.New("the runner's stream ended without Finished")
	// ErrClosed is what a closed [Daemon] or [Runner] answers.
	ErrClosed = errors.New("the client is closed")
	// ErrStreamClosed is wrapped by what a closed [DecodeStream] answers.
	ErrStreamClosed = errors.New("the stream is closed")
	// ErrStepUnanswered is wrapped where a session has a Step whose answer was neither taken nor forgotten.
	ErrStepUnanswered = errors.New("the session has an unanswered step; take or forget its answer first")
	// ErrNothingSent is wrapped where an answer is asked for and no Step was sent.
	ErrNothingSent = errors.New("no unanswered step was sent for the session")
)

// Error is what the daemon, the runner or the transport refused.
//
// errors.Is finds its Reason, and context.DeadlineExceeded or context.Canceled where its code says so.
type Error struct {
	// Code is the gRPC status; for a step that was refused in a stream, the one that the protocol puts beside the reason.
	Code codes.Code
	// Reason is empty where the server gave none: then the transport, or a proxy, speaks.
	Reason Reason
	// Message says, for people, what was wrong and what to do.
	Message string
	// Metadata has the particulars, such as {"expected_position": "7"}.
	Metadata map[string]string
	// RetryDelay is how long to wait at least before the same again, if the server said so; else 0.
	RetryDelay time.Duration

	status *status.Status
}

// Error gives reason (or code) and message.
func (e *Error) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%s: %s", e.Reason, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Is compares with a [Reason], and with the errors of package context.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	case context.Canceled:
		return e.Code == codes.Canceled
	}
	reason, isReason := target.(Reason)
	return isReason && e.Reason == reason && reason != ""
}

// GRPCStatus makes status.FromError and status.Code work.
func (e *Error) GRPCStatus() *status.Status {
	if e.status != nil {
		return e.status
	}
	return status.New(e.Code, e.Error())
}

// Retryable tells whether the same call again, after a pause, may succeed: the server can't be reached or is going
// down, its store is away, it is full, or a step is still in flight. INTERNAL without a reason counts too: that is how
// a proxy tells of a stream whose server died, since a server's own INTERNAL has a reason.
func (e *Error) Retryable() bool {
	switch e.Reason {
	case ReasonStepInFlight, ReasonLimitReached:
		return true
	}
	return e.Code == codes.Unavailable || e.Code == codes.Canceled || e.resetOnTheWay()
}

// lostItsServer tells whether another address may do better.
func (e *Error) lostItsServer() bool {
	if e.Reason == ReasonStoreUnavailable {
		return false
	}
	return e.Code == codes.Unavailable || e.Code == codes.Canceled || e.resetOnTheWay()
}

func (e *Error) resetOnTheWay() bool { return e.Code == codes.Internal && e.Reason == "" }

// ExpectedPosition is the session's position, of POSITION_GAP and STALE_POSITION.
func (e *Error) ExpectedPosition() (uint64, bool) { return e.number("expected_position") }

// IllegalIndex is the index of the first illegal one of a step's tokens.
func (e *Error) IllegalIndex() (uint64, bool) { return e.number("illegal_index") }

// LoggedTokens are the tokens that were applied at that position, of POSITION_CONFLICT.
func (e *Error) LoggedTokens() []uint32 {
	var tokens []uint32
	for text := range strings.SplitSeq(e.Metadata["logged_tokens"], ",") {
		if token, err := strconv.ParseUint(text, 10, 32); err == nil {
			tokens = append(tokens, uint32(token))
		}
	}
	return tokens
}

// Field names the field that was wrong, such as "sampler.stages[1].top_p"; empty where none is named.
func (e *Error) Field() string { return e.Metadata["field"] }

// Location is where in a grammar or tokenizer, as "line:column" or a JSON pointer; empty where it isn't known.
func (e *Error) Location() string { return e.Metadata["location"] }

func (e *Error) number(key string) (uint64, bool) {
	value, err := strconv.ParseUint(e.Metadata[key], 10, 64)
	return value, err == nil
}

// IsRetryable tells whether err is an [*Error] that is [Error.Retryable].
func IsRetryable(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Retryable()
}

// errorOf is the Error of a call that failed; nil for nil. What is no gRPC status stays as it is.
func errorOf(err error) error {
	if err == nil {
		return nil
	}
	if _, done := errors.AsType[*Error](err); done {
		return err
	}
	state, ok := status.FromError(err)
	if !ok {
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			state = status.FromContextError(err)
		default:
			return err
		}
	}
	refused := &Error{Code: state.Code(), Message: state.Message(), Metadata: map[string]string{}, status: state}
	for _, detail := range state.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == errorDomain {
				refused.Reason = Reason(detail.GetReason())
				maps.Copy(refused.Metadata, detail.GetMetadata())
			}
		case *errdetails.RetryInfo:
			refused.RetryDelay = max(detail.GetRetryDelay().AsDuration(), 0)
		case *pb.StepError:
			particulars := stepMetadata(detail)
			maps.Copy(particulars, refused.Metadata)
			refused.Metadata = particulars
		}
	}
	return refused
}

// errorOfStep is the Error of a step that was refused in a stream.
func errorOfStep(message *pb.StepError) *Error {
	reason := reasonOf(message.GetReason())
	code, known := codeOfReason[reason]
	if !known {
		code = codes.Unknown
	}
	return &Error{Code: code, Reason: reason, Message: message.GetMessage(), Metadata: stepMetadata(message)}
}

func stepMetadata(message *pb.StepError) map[string]string {
	metadata := map[string]string{}
	if message.ExpectedPosition != nil {
		metadata["expected_position"] = strconv.FormatUint(message.GetExpectedPosition(), 10)
	}
	if logged := message.GetLoggedTokens(); len(logged) > 0 {
		texts := make([]string, len(logged))
		for i, token := range logged {
			texts[i] = strconv.FormatUint(uint64(token), 10)
		}
		metadata["logged_tokens"] = strings.Join(texts, ",")
	}
	if message.IllegalIndex != nil {
		metadata["illegal_index"] = strconv.FormatUint(uint64(message.GetIllegalIndex()), 10)
	}
	return metadata
}
