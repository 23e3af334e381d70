package constraintd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// failing gives the error that a client makes of a server's status.
func failing(t *testing.T, code codes.Code, details ...protoadapt.MessageV1) *constraintd.Error {
	t.Helper()
	state, err := status.New(code, "what was wrong").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	daemon := startScripted(t, func(int, decodeServer) error { return state.Err() })
	stream, err := newDaemon(t, daemon.target).Decode(t.Context(), "v", 32)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, err := range []error{stream.Err(), stream.Broken()} {
			if refusal, ok := errors.AsType[*constraintd.Error](err); ok {
				return refusal
			}
		}
	}
	t.Fatal("the stream did not fail")
	return nil
}

func info(domain, reason string, metadata map[string]string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: metadata}
}

func TestAnErrorHasTheReasonAndParticularsThatTheServerGave(t *testing.T) {
	refusal := failing(t, codes.InvalidArgument,
		info("constraintd", "INVALID_FIELD", map[string]string{"field": "sampler.stages[1].top_p"}),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})
	if refusal.Field() != "sampler.stages[1].top_p" || refusal.RetryDelay != 1500*time.Millisecond ||
		refusal.Error() != "INVALID_FIELD: what was wrong" || status.Code(refusal) != codes.InvalidArgument {
		t.Errorf("%+v", refusal)
	}
	wrapped := fmt.Errorf("generating: %w", refusal)
	if !errors.Is(wrapped, constraintd.ReasonInvalidField) || errors.Is(wrapped, constraintd.ReasonTooLarge) ||
		errors.Is(wrapped, context.Canceled) {
		t.Errorf("%v", wrapped)
	}
}

func TestAReasonThatIsNewerThanThisClientWorks(t *testing.T) {
	refusal := failing(t, codes.FailedPrecondition, info("constraintd", "MOON_IS_FULL", map[string]string{"moon": "1"}))
	if !errors.Is(refusal, constraintd.Reason("MOON_IS_FULL")) || refusal.Metadata["moon"] != "1" || refusal.Retryable() {
		t.Errorf("%+v", refusal)
	}
	stream, sessions := scripted(t, 1, func(_ int, stream decodeServer) error {
		got, err := steps(stream, 1)
		if err != nil {
			return err
		}
		return errors.Join(stream.Send(answers(refusedAs(got[0], 999))), stream.Context().Err())
	})
	if err := stream.Send(report(sessions[0], 1)); err != nil {
		t.Fatal(err)
	}
	_, err := take(t, stream, sessions[0])
	if refusal := refused(t, err, "999"); refusal.Code != codes.Unknown || refusal.Message != "no" {
		t.Errorf("%+v", refusal)
	}
}

func TestAnotherDomainsErrorInfoIsNoReason(t *testing.T) {
	refusal := failing(t, codes.PermissionDenied, info("proxy.example", "STALE_EPOCH", map[string]string{"field": "x"}))
	if refusal.Reason != "" || refusal.Field() != "" || errors.Is(refusal, constraintd.ReasonStaleEpoch) ||
		errors.Is(refusal, constraintd.Reason("")) || !strings.HasPrefix(refusal.Error(), "PermissionDenied: ") {
		t.Errorf("%+v", refusal)
	}
}

func TestParticularsOfAStepAreReadFromEitherDetail(t *testing.T) {
	refusal := failing(t, codes.Aborted, info("constraintd", "POSITION_CONFLICT", map[string]string{"logged_tokens": "1,2"}),
		&pb.StepError{LoggedTokens: []uint32{7}, IllegalIndex: new(uint32(3)), ExpectedPosition: new(uint64(9))})
	index, has := refusal.IllegalIndex()
	position, hasPosition := refusal.ExpectedPosition()
	if !slices.Equal(refusal.LoggedTokens(), []uint32{1, 2}) || !has || index != 3 || !hasPosition || position != 9 {
		t.Errorf("%+v", refusal)
	}
	odd := &constraintd.Error{Metadata: map[string]string{"expected_position": "-1", "logged_tokens": "x,4294967296,5"}}
	if _, has := odd.ExpectedPosition(); has || !slices.Equal(odd.LoggedTokens(), []uint32{5}) {
		t.Errorf("%v, %v", has, odd.LoggedTokens())
	}
}

func TestWhatIsRetried(t *testing.T) {
	for _, each := range []struct {
		code      codes.Code
		reason    constraintd.Reason
		retryable bool
	}{
		{codes.Unavailable, "", true},
		{codes.Unavailable, constraintd.ReasonStoreUnavailable, true},
		{codes.Unavailable, constraintd.ReasonDaemonUnavailable, true},
		{codes.Unavailable, "MOON_IS_FULL", true},
		{codes.Canceled, "", true},
		{codes.Aborted, constraintd.ReasonStepInFlight, true},
		{codes.ResourceExhausted, constraintd.ReasonLimitReached, true},
		{codes.Internal, "", true},
		{codes.Internal, constraintd.ReasonInternal, false},
		{codes.Internal, constraintd.ReasonModelFailed, false},
		{codes.ResourceExhausted, "", false},
		{codes.ResourceExhausted, constraintd.ReasonTooLarge, false},
		{codes.DeadlineExceeded, "", false},
		{codes.Aborted, constraintd.ReasonStaleEpoch, false},
		{codes.Unauthenticated, "", false},
	} {
		err := error(&constraintd.Error{Code: each.code, Reason: each.reason})
		if constraintd.IsRetryable(fmt.Errorf("wrapped: %w", err)) != each.retryable {
			t.Errorf("%s %q: expected %v", each.code, each.reason, each.retryable)
		}
	}
	if constraintd.IsRetryable(nil) || constraintd.IsRetryable(context.Canceled) || constraintd.IsRetryable(constraintd.ErrClosed) {
		t.Error("what no server said is retried")
	}
}

func TestRetryGoesOnUntilItSucceedsIsMeantOrTimeIsUp(t *testing.T) {
	passing, meant := &constraintd.Error{Code: codes.Unavailable}, &constraintd.Error{Code: codes.NotFound}
	tries := 0
	after := func(count int, last error) func(context.Context) error {
		tries = 0
		return func(context.Context) error {
			if tries++; tries < count {
				return passing
			}
			return last
		}
	}
	if err := constraintd.Retry(t.Context(), after(4, nil)); err != nil || tries != 4 {
		t.Errorf("%d tries, %v", tries, err)
	}
	if err := constraintd.Retry(t.Context(), after(3, meant)); err != error(meant) || tries != 3 {
		t.Errorf("%d tries, %v", tries, err)
	}
	if err := constraintd.Retry(within(t, 100*time.Millisecond), after(1_000_000, nil)); err != error(passing) || tries < 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
	slow := &constraintd.Error{Code: codes.Unavailable, RetryDelay: time.Hour}
	began := time.Now()
	if err := constraintd.Retry(within(t, 50*time.Millisecond), func(context.Context) error { return slow }); err != error(slow) {
		t.Error(err)
	}
	if time.Since(began) > 5*time.Second {
		t.Error("it waited past its context")
	}
}
