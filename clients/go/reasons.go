package constraintd

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// Reason says why a call or a step was refused: the name of an ErrorReason of the protocol, without its prefix. A
// server that is newer than this client may give others. It is an error so that errors.Is finds it in an [*Error].
type Reason string

// Error gives the reason's name.
func (reason Reason) Error() string { return string(reason) }

// The reasons, in the protocol's order; proto/constraintd/v1/error.proto says more, and which metadata each brings.
const (
	// ReasonInvalidField: a field is missing, malformed or out of range; see [Error.Field].
	ReasonInvalidField Reason = "INVALID_FIELD"
	// ReasonTooLarge: a text, list or upload is longer than the server takes.
	ReasonTooLarge Reason = "TOO_LARGE"
	// ReasonLimitReached: the server holds as many streams, sessions or uploads as it can. Try later.
	ReasonLimitReached Reason = "LIMIT_REACHED"
	// ReasonInternal: a fault of the server itself.
	ReasonInternal Reason = "INTERNAL"
	// ReasonUnauthenticated: the call came without a token that the server knows.
	ReasonUnauthenticated Reason = "UNAUTHENTICATED"

	// ReasonInvalidVocabulary: the tokenizer or its EOG ids can't be used; see [Error.Location].
	ReasonInvalidVocabulary Reason = "INVALID_VOCABULARY"
	// ReasonUnknownVocabulary: no vocabulary of that id is registered. Register it again.
	ReasonUnknownVocabulary Reason = "UNKNOWN_VOCABULARY"
	// ReasonVocabularyMismatch: the session belongs to another vocabulary than the stream or grammar.
	ReasonVocabularyMismatch Reason = "VOCABULARY_MISMATCH"
	// ReasonLogitsWidthMismatch: the stream names another logits width than the vocabulary has.
	ReasonLogitsWidthMismatch Reason = "LOGITS_WIDTH_MISMATCH"

	// ReasonInvalidGrammar: the grammar doesn't parse or compile, or can't be spelled; see [Error.Location].
	ReasonInvalidGrammar Reason = "INVALID_GRAMMAR"
	// ReasonUnknownGrammar: no grammar of that id is compiled for that vocabulary. Compile it again.
	ReasonUnknownGrammar Reason = "UNKNOWN_GRAMMAR"
	// ReasonLimitExceeded: a grammar, or a session in it, went past an engine limit.
	ReasonLimitExceeded Reason = "LIMIT_EXCEEDED"

	// ReasonUnknownSession: no session of that id: never opened, closed, or expired.
	ReasonUnknownSession Reason = "UNKNOWN_SESSION"
	// ReasonAlreadyExists: that session id was opened by a different request.
	ReasonAlreadyExists Reason = "ALREADY_EXISTS"
	// ReasonStaleEpoch: another runner has taken the session over.
	ReasonStaleEpoch Reason = "STALE_EPOCH"
	// ReasonPositionGap: the step begins past the session's position; see [Error.ExpectedPosition].
	ReasonPositionGap Reason = "POSITION_GAP"
	// ReasonPositionConflict: other tokens were applied at that position; see [Error.LoggedTokens].
	ReasonPositionConflict Reason = "POSITION_CONFLICT"
	// ReasonStalePosition: the step begins before the last applied one; see [Error.ExpectedPosition].
	ReasonStalePosition Reason = "STALE_POSITION"
	// ReasonSessionFinished: the session has finished, or tokens stand behind the one that finishes it; see
	// [Error.IllegalIndex].
	ReasonSessionFinished Reason = "SESSION_FINISHED"
	// ReasonTokenNotAllowed: a token whose bit was not set; see [Error.IllegalIndex].
	ReasonTokenNotAllowed Reason = "TOKEN_NOT_ALLOWED"
	// ReasonInvalidSurprisal: a surprisal that is negative, infinite or not a number; see [Error.IllegalIndex].
	ReasonInvalidSurprisal Reason = "INVALID_SURPRISAL"
	// ReasonStepInFlight: the session's last step is not answered yet.
	ReasonStepInFlight Reason = "STEP_IN_FLIGHT"
	// ReasonNoTokenAllowed: the constraint leaves no token here; the history is intact.
	ReasonNoTokenAllowed Reason = "NO_TOKEN_ALLOWED"
	// ReasonInvalidEnvelope: an exported session can't be imported.
	ReasonInvalidEnvelope Reason = "INVALID_ENVELOPE"
	// ReasonReplayDiverged: the session's log leads to another state now.
	ReasonReplayDiverged Reason = "REPLAY_DIVERGED"
	// ReasonStoreUnavailable: the daemon's store can't keep what was asked for now. Send the same again.
	ReasonStoreUnavailable Reason = "STORE_UNAVAILABLE"

	// ReasonHelloExpected: the first message of a Decode stream was not Hello, or a later one was.
	ReasonHelloExpected Reason = "HELLO_EXPECTED"

	// ReasonContextExceeded: prompt and output don't fit the model's context.
	ReasonContextExceeded Reason = "CONTEXT_EXCEEDED"
	// ReasonDaemonUnavailable: the runner got no answer from the daemon in time.
	ReasonDaemonUnavailable Reason = "DAEMON_UNAVAILABLE"
	// ReasonModelFailed: the model's forward pass failed.
	ReasonModelFailed Reason = "MODEL_FAILED"
)

// A StepError travels without a gRPC code. These are the codes that the protocol puts beside the reasons.
var codeOfReason = map[Reason]codes.Code{
	ReasonInvalidField:        codes.InvalidArgument,
	ReasonTooLarge:            codes.ResourceExhausted,
	ReasonLimitReached:        codes.ResourceExhausted,
	ReasonInternal:            codes.Internal,
	ReasonUnauthenticated:     codes.Unauthenticated,
	ReasonInvalidVocabulary:   codes.InvalidArgument,
	ReasonUnknownVocabulary:   codes.NotFound,
	ReasonVocabularyMismatch:  codes.FailedPrecondition,
	ReasonLogitsWidthMismatch: codes.InvalidArgument,
	ReasonInvalidGrammar:      codes.InvalidArgument,
	ReasonUnknownGrammar:      codes.NotFound,
	ReasonLimitExceeded:       codes.ResourceExhausted,
	ReasonUnknownSession:      codes.NotFound,
	ReasonAlreadyExists:       codes.AlreadyExists,
	ReasonStaleEpoch:          codes.Aborted,
	ReasonPositionGap:         codes.FailedPrecondition,
	ReasonPositionConflict:    codes.Aborted,
	ReasonStalePosition:       codes.Aborted,
	ReasonSessionFinished:     codes.FailedPrecondition,
	ReasonTokenNotAllowed:     codes.InvalidArgument,
	ReasonInvalidSurprisal:    codes.InvalidArgument,
	ReasonStepInFlight:        codes.Aborted,
	ReasonNoTokenAllowed:      codes.FailedPrecondition,
	ReasonInvalidEnvelope:     codes.DataLoss,
	ReasonReplayDiverged:      codes.DataLoss,
	ReasonStoreUnavailable:    codes.Unavailable,
	ReasonHelloExpected:       codes.InvalidArgument,
	ReasonContextExceeded:     codes.InvalidArgument,
	ReasonDaemonUnavailable:   codes.Unavailable,
	ReasonModelFailed:         codes.Internal,
}

// reasonOf names an ErrorReason; one that is newer than the stubs is given as its number.
func reasonOf(value pb.ErrorReason) Reason {
	if value == pb.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return ""
	}
	return Reason(enumName(pb.ErrorReason_name, int32(value), "ERROR_REASON_"))
}

// enumName is the name of an enum's value without its prefix, or its number where the stubs are too old to know it.
func enumName(names map[int32]string, value int32, prefix string) string {
	if name, known := names[value]; known {
		return strings.TrimPrefix(name, prefix)
	}
	return strconv.Itoa(int(value))
}
