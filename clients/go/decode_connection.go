package constraintd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// A daemon that was still at work on what a broken connection had brought it is asked again after so long, doubled each
// time, up to the second.
const (
	inFlightPause    = 5 * time.Millisecond
	inFlightPauseCap = 160 * time.Millisecond
)

// connect opens one connection, sends what is unanswered, and serves it until it ends. It tells whether an answer came,
// and why it ended, never nil. Only one runs at a time, and it reads its connection to the end: what that still brings
// can't be mistaken for an answer on the next.
func (s *DecodeStream) connect(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	address, connection, err := s.daemon.targets.connection()
	if err != nil {
		cancel()
		return false, err
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	defer func() {
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the daemon ended the stream")
		}
		err = errorOf(err)
		leaveIfLost(s.daemon.targets, address, err, ctx)
	}()
	stream, err := pb.NewConstraintServiceClient(connection).Decode(ctx)
	if err != nil {
		return false, err
	}
	hello := &pb.DecodeRequest{Message: &pb.DecodeRequest_Hello{Hello: s.hello}}
	if err := stream.Send(hello); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	s.queueAll()
	draining := make(chan struct{})
	writer.Go(func() { s.write(ctx, stream, draining) })
	for {
		response, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		switch message := response.GetMessage().(type) {
		case *pb.DecodeResponse_DirectiveBatch:
			answered = true
			s.deliver(message.DirectiveBatch)
		case *pb.DecodeResponse_Draining:
			select {
			case <-draining:
			default:
				close(draining)
			}
		}
	}
}

// write sends what stands in the outbox, until the connection ends or the daemon says that it reads no more. What it
// can't send stays unanswered, for the next connection.
func (s *DecodeStream) write(
	ctx context.Context, stream interface{ Send(*pb.DecodeRequest) error }, draining <-chan struct{},
) {
	for {
		select {
		case <-draining:
			return
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-draining:
			return
		case <-s.ready:
		}
		for batch := range slices.Chunk(s.takeOutbox(), s.batchSteps) {
			request := &pb.DecodeRequest{Message: &pb.DecodeRequest_StepBatch{StepBatch: &pb.StepBatch{Steps: batch}}}
			if err := stream.Send(request); err != nil {
				return // the reader learns why
			}
		}
	}
}

func (s *DecodeStream) deliver(batch *pb.DirectiveBatch) {
	for _, answer := range batch.GetAnswers() {
		if len(answer.GetSessionId()) != len(SessionID{}) {
			continue // nobody's
		}
		id := SessionID(answer.GetSessionId())
		// Outside of the lock: it copies the mask.
		directive, err := outcomeOf(answer)
		s.mu.Lock()
		if one := s.unanswered[id]; one != nil && one.sent && !one.isDone() {
			s.settle(one, directive, err)
		}
		s.mu.Unlock()
	}
}

func outcomeOf(answer *pb.StepAnswer) (*Directive, error) {
	switch outcome := answer.GetAnswer().(type) {
	case *pb.StepAnswer_Directive:
		return directiveOf(outcome.Directive)
	case *pb.StepAnswer_Error:
		return nil, errorOfStep(outcome.Error)
	}
	return nil, fmt.Errorf("%w: neither a directive nor an error", ErrMalformedAnswer)
}

// settle takes the answer to a Step in. Under the lock.
func (s *DecodeStream) settle(one *waiting, directive *Directive, err error) {
	if err != nil {
		if one.resent && errors.Is(err, ReasonStepInFlight) {
			pause := min(inFlightPause<<min(one.inFlight, 10), inFlightPauseCap)
			one.inFlight++
			connection := s.connections
			time.AfterFunc(pause, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				// The next connection has it in its outbox anyway; two of it there would get two answers.
				if connection == s.connections && s.unanswered[one.id] == one && !one.isDone() {
					s.queue(one)
				}
			})
			return
		}
		one.err = err
		close(one.done)
		return
	}
	expected := one.step.GetPosition() + uint64(len(one.step.GetTokens()))
	switch {
	case directive.Position == expected:
		one.directive = directive
	case directive.Position < expected:
		return // the answer to an earlier Step of the session, which was forgotten
	default:
		// Its mask would be another position's.
		one.err = fmt.Errorf("%w: it stands at position %d, expected %d", ErrMalformedAnswer, directive.Position, expected)
	}
	close(one.done)
}
