package constraintd_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

type decodeServer = grpc.BidiStreamingServer[pb.DecodeRequest, pb.DecodeResponse]

// scripted opens sessions and a stream at a scripted daemon.
func scripted(
	t *testing.T, count int, script func(int, decodeServer) error,
) (*constraintd.DecodeStream, []*constraintd.Session) {
	t.Helper()
	f := &fixture{newDaemon(t, startScripted(t, script).target), "v"}
	var sessions []*constraintd.Session
	for range count {
		sessions = append(sessions, f.open(t, constraintd.Regex("a"), nil))
	}
	return f.stream(t), sessions
}

// steps reads batches until it has so many steps.
func steps(stream decodeServer, count int) ([]*pb.Step, error) {
	var all []*pb.Step
	for len(all) < count {
		request, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		all = append(all, request.GetStepBatch().GetSteps()...)
	}
	return all, nil
}

func take(t *testing.T, stream *constraintd.DecodeStream, session *constraintd.Session) (*constraintd.Directive, error) {
	t.Helper()
	return stream.Take(within(t, 30*time.Second), session)
}

func TestADrainingStreamIsReadToItsEndAndTheRestGoesToTheNext(t *testing.T) {
	drained := make(chan struct{})
	var late []string
	var mu sync.Mutex
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		late = append(late, what)
	}
	stream, sessions := scripted(t, 3, func(number int, stream decodeServer) error {
		if number == 0 {
			got, err := steps(stream, 2)
			if err != nil {
				return err
			}
			draining := &pb.DecodeResponse{Message: &pb.DecodeResponse_Draining{Draining: &pb.Draining{}}}
			if err := errors.Join(stream.Send(draining), stream.Send(draining)); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
			close(drained)
			received := make(chan struct{})
			go func() {
				defer close(received)
				if more, err := steps(stream, 1); err == nil {
					note("sent to the draining stream: " + more[0].String())
				}
			}()
			time.Sleep(200 * time.Millisecond)
			// The second Step of the batch stays unanswered.
			if err := stream.Send(answers(applied(got[0]))); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "stopping")
		}
		got, err := steps(stream, 2)
		if err != nil {
			return err
		}
		return errors.Join(stream.Send(answers(applied(got[1]), applied(got[0]))), stream.Context().Err())
	})
	if err := stream.Send(report(sessions[0], 1), report(sessions[1], 1)); err != nil {
		t.Fatal(err)
	}
	<-drained
	if err := stream.Send(report(sessions[2], 1)); err != nil {
		t.Fatal(err)
	}
	for i, session := range sessions {
		if directive, err := take(t, stream, session); err != nil || directive.Position != 1 {
			t.Errorf("session %d: %+v, %v", i, directive, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(late) > 0 {
		t.Error(late)
	}
}

func TestAStreamThatBreaksInAnyWayThatPassesIsOpenedAgain(t *testing.T) {
	for name, end := range map[string]error{
		"UNAVAILABLE":               status.Error(codes.Unavailable, "gone"),
		"CANCELLED":                 status.Error(codes.Canceled, "going down"),
		"INTERNAL without a reason": status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
		"OK":                        nil,
	} {
		t.Run(name, func(t *testing.T) {
			stream, sessions := scripted(t, 1, func(number int, stream decodeServer) error {
				got, err := steps(stream, 1)
				if err != nil || number < 2 {
					return errors.Join(err, end)
				}
				return errors.Join(stream.Send(answers(applied(got[0]))), stream.Context().Err())
			})
			if err := stream.Send(report(sessions[0], 1)); err != nil {
				t.Fatal(err)
			}
			if directive, err := take(t, stream, sessions[0]); err != nil || directive.Position != 1 {
				t.Errorf("%+v, %v", directive, err)
			}
		})
	}
}

func TestAStreamFailsForGoodWhereTheServerMeansIt(t *testing.T) {
	stream, sessions := scripted(t, 1, func(_ int, stream decodeServer) error {
		return status.Error(codes.Unauthenticated, "no token")
	})
	if err := stream.Send(report(sessions[0], 1)); err != nil {
		t.Fatal(err)
	}
	_, err := take(t, stream, sessions[0])
	if refusal, ok := errors.AsType[*constraintd.Error](err); !ok || refusal.Code != codes.Unauthenticated {
		t.Errorf("got %v", err)
	}
}

func TestAStepThatIsStillInFlightAfterABreakIsSentAgain(t *testing.T) {
	stream, sessions := scripted(t, 1, func(number int, stream decodeServer) error {
		got, err := steps(stream, 1)
		if err != nil || number == 0 {
			return errors.Join(err, status.Error(codes.Unavailable, "gone"))
		}
		for range 3 {
			if err := stream.Send(answers(refusedAs(got[0], pb.ErrorReason_ERROR_REASON_STEP_IN_FLIGHT))); err != nil {
				return err
			}
			if got, err = steps(stream, 1); err != nil {
				return err
			}
		}
		return errors.Join(stream.Send(answers(applied(got[0]))), stream.Context().Err())
	})
	if err := stream.Send(report(sessions[0], 1)); err != nil {
		t.Fatal(err)
	}
	if directive, err := take(t, stream, sessions[0]); err != nil || directive.Position != 1 {
		t.Errorf("%+v, %v", directive, err)
	}
}

func TestAnAnswerThatIsNotTheStepsOwnIsNeverTakenForIt(t *testing.T) {
	at := func(step *pb.Step, position uint64) *pb.StepAnswer {
		return &pb.StepAnswer{SessionId: step.GetSessionId(), Answer: &pb.StepAnswer_Directive{Directive: maskAt(position)}}
	}
	with := func(step *pb.Step, directive *pb.Directive) *pb.StepAnswer {
		return &pb.StepAnswer{SessionId: step.GetSessionId(), Answer: &pb.StepAnswer_Directive{Directive: directive}}
	}
	nan := new(float64)
	*nan /= *nan
	for name, each := range map[string]struct {
		answer func(*pb.Step) []*pb.StepAnswer
		wrong  string
	}{
		"an earlier one, then its own": {func(s *pb.Step) []*pb.StepAnswer { return []*pb.StepAnswer{at(s, 0), at(s, 1)} }, ""},
		"one of nobody, then its own": {func(s *pb.Step) []*pb.StepAnswer {
			return []*pb.StepAnswer{{SessionId: []byte("short")}, {SessionId: make([]byte, 16)}, at(s, 1)}
		}, ""},
		"its own twice": {func(s *pb.Step) []*pb.StepAnswer {
			return []*pb.StepAnswer{at(s, 1), refusedAs(s, pb.ErrorReason_ERROR_REASON_STALE_EPOCH)}
		}, ""},
		"a later one": {func(s *pb.Step) []*pb.StepAnswer { return []*pb.StepAnswer{at(s, 2)} }, "it stands at position 2, expected 1"},
		"none at all": {func(s *pb.Step) []*pb.StepAnswer {
			return []*pb.StepAnswer{{SessionId: s.GetSessionId()}}
		}, "neither a directive nor an error"},
		"no outcome": {func(s *pb.Step) []*pb.StepAnswer {
			return []*pb.StepAnswer{with(s, &pb.Directive{Position: 1})}
		}, "no mask, finish or no_token_allowed"},
		"an unknown encoding": {func(s *pb.Step) []*pb.StepAnswer {
			return []*pb.StepAnswer{with(s, &pb.Directive{Position: 1, Outcome: &pb.Directive_Mask{Mask: &pb.Mask{}}})}
		}, "the mask has 0 bytes"},
		"half a mask": {func(s *pb.Step) []*pb.StepAnswer {
			mask := &pb.Mask{Encoding: &pb.Mask_Dense{Dense: []byte{1, 2, 3}}}
			return []*pb.StepAnswer{with(s, &pb.Directive{Position: 1, Outcome: &pb.Directive_Mask{Mask: mask}})}
		}, "the mask has 3 bytes"},
		"a mu that is no number": {func(s *pb.Step) []*pb.StepAnswer {
			directive := maskAt(1)
			directive.Mu = nan
			return []*pb.StepAnswer{with(s, directive)}
		}, "mu is NaN"},
		"adjustments of two lengths": {func(s *pb.Step) []*pb.StepAnswer {
			directive := maskAt(1)
			directive.Adjustments = &pb.LogitAdjustments{Ids: make([]byte, 8), Scales: make([]byte, 16), Offsets: make([]byte, 8)}
			return []*pb.StepAnswer{with(s, directive)}
		}, "expected 4, 8 and 8 a token"},
		"a scale of 0": {func(s *pb.Step) []*pb.StepAnswer {
			directive := maskAt(1)
			directive.Adjustments = &pb.LogitAdjustments{Ids: make([]byte, 4), Scales: make([]byte, 8), Offsets: make([]byte, 8)}
			return []*pb.StepAnswer{with(s, directive)}
		}, "the scale 0"},
	} {
		t.Run(name, func(t *testing.T) {
			stream, sessions := scripted(t, 1, func(_ int, stream decodeServer) error {
				got, err := steps(stream, 1)
				if err != nil {
					return err
				}
				if err := stream.Send(answers(each.answer(got[0])...)); err != nil {
					return err
				}
				<-stream.Context().Done()
				return nil
			})
			if err := stream.Send(report(sessions[0], 1)); err != nil {
				t.Fatal(err)
			}
			directive, err := take(t, stream, sessions[0])
			if each.wrong == "" {
				if err != nil || directive.Position != 1 {
					t.Errorf("%+v, %v", directive, err)
				}
			} else if !errors.Is(err, constraintd.ErrMalformedAnswer) || !strings.Contains(err.Error(), each.wrong) {
				t.Errorf("got %v, expected %q", err, each.wrong)
			}
		})
	}
}

func TestWhatIsSentIsACopy(t *testing.T) {
	release := make(chan struct{})
	stream, sessions := scripted(t, 1, func(number int, stream decodeServer) error {
		if number == 0 {
			return status.Error(codes.Unavailable, "gone")
		}
		<-release
		got, err := steps(stream, 1)
		if err != nil {
			return err
		}
		if got[0].GetTokens()[0] != 1 {
			return status.Error(codes.InvalidArgument, "another token than was sent")
		}
		return errors.Join(stream.Send(answers(applied(got[0]))), stream.Context().Err())
	})
	given := report(sessions[0], 1)
	if err := stream.Send(given); err != nil {
		t.Fatal(err)
	}
	given.Tokens[0] = 9
	close(release)
	if _, err := take(t, stream, sessions[0]); err != nil {
		t.Error(err)
	}
}

func TestWhoeverTakesLearnsThatTheStreamWasClosed(t *testing.T) {
	stream, sessions := scripted(t, 1, func(_ int, stream decodeServer) error {
		<-stream.Context().Done()
		return nil
	})
	if err := stream.Send(report(sessions[0], 1)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { stream.Close() })
	if _, err := take(t, stream, sessions[0]); !errors.Is(err, constraintd.ErrStreamClosed) {
		t.Errorf("got %v", err)
	}
	if err := stream.Reconnect(); !errors.Is(err, constraintd.ErrStreamClosed) {
		t.Errorf("reconnected: %v", err)
	}
}
