package constraintd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// DecodeStream steps many sessions of one vocabulary, one unanswered Step a session. Any goroutine may send, take and
// forget, each session from one goroutine at a time. Answers wait here until they are taken, at most one a session, so
// that memory is bounded; and the stream is always read, so that flow control can't lock up.
//
// When its connection breaks, or the daemon is about to stop, the stream opens another one by itself, with pauses in
// between and at the next target, and sends there what stayed unanswered; a Step that was applied already gets the same
// answer again. What is wrong with the stream itself, such as UNKNOWN_VOCABULARY, makes it fail: Take tells, and
// Reconnect tries again.
type DecodeStream struct {
	daemon     *Daemon
	hello      *pb.Hello
	batchSteps int
	parent     context.Context

	// ready wakes the writer: something stands in the outbox.
	ready chan struct{}

	mu          sync.Mutex
	unanswered  map[SessionID]*waiting
	outbox      []*waiting
	connections int           // how many there were
	broken      error         // why the last connection ended; nil while one stands
	failed      error         // why the stream gave up; nil while it doesn't
	down        chan struct{} // closed when it gives up
	closed      bool
	cancel      context.CancelFunc
	ended       chan struct{} // closed when the present run loop has ended
}

// waiting is one unanswered Step. All but done is guarded by the stream's lock.
type waiting struct {
	id        SessionID
	step      *pb.Step
	sent      bool
	resent    bool
	inFlight  int
	directive *Directive
	err       error
	done      chan struct{} // closed when directive or err is there
}

// Decode opens a stream for the sessions of one vocabulary. It lives until Close, or until ctx is done. The server's
// own word on vocabulary and width comes with the first Take.
func (d *Daemon) Decode(ctx context.Context, vocabularyID string, logitsWidth uint32) (*DecodeStream, error) {
	hello := &pb.Hello{VocabularyId: vocabularyID, LogitsWidth: logitsWidth}
	if err := sendable(hello); err != nil {
		return nil, err
	}
	info, err := d.ServerInfo(ctx)
	if err != nil {
		return nil, err
	}
	s := &DecodeStream{
		daemon:     d,
		hello:      hello,
		batchSteps: max(int(info.GetLimits().GetMaxBatchSteps()), 1),
		parent:     ctx,
		ready:      make(chan struct{}, 1),
		unanswered: map[SessionID]*waiting{},
	}
	s.start()
	return s, nil
}

// Send sends these Steps, in one batch unless they are more than the daemon takes in one. It never waits: on a broken
// stream they count as unanswered, and are sent by the next connection. It fails, before anything is sent, if a session
// has an unanswered Step or stands there twice, if a report is malformed, or if the stream is closed.
func (s *DecodeStream) Send(reports ...Report) error {
	added := make(map[SessionID]*waiting, len(reports))
	ordered := make([]*waiting, 0, len(reports))
	for i := range reports {
		step, err := reports[i].step()
		if err != nil {
			return err
		}
		one := &waiting{id: reports[i].Session.ID, step: step, done: make(chan struct{})}
		if added[one.id] != nil {
			return fmt.Errorf("session %s stands there twice: %w", one.id, ErrStepUnanswered)
		}
		added[one.id] = one
		ordered = append(ordered, one)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStreamClosed
	}
	for id := range added {
		if s.unanswered[id] != nil {
			return fmt.Errorf("session %s: %w", id, ErrStepUnanswered)
		}
	}
	for _, one := range ordered {
		s.unanswered[one.id] = one
	}
	s.queue(ordered...)
	return nil
}

// Take gives a session's answer and moves the session on.
//
// Where the Step was refused, it fails with its [*Error], and with an error that wraps [ErrMalformedAnswer] where the
// answer can't be used; either way the session has no unanswered Step any more. In every other case the Step stays
// unanswered: when ctx is done before the answer came, take again, or forget it; when the stream gave up, Take fails as
// [DecodeStream.Err] does.
func (s *DecodeStream) Take(ctx context.Context, session *Session) (*Directive, error) {
	for {
		s.mu.Lock()
		one, down := s.unanswered[session.ID], s.down
		s.mu.Unlock()
		if one == nil {
			return nil, fmt.Errorf("session %s: %w", session.ID, ErrNothingSent)
		}
		select {
		case <-one.done: // also where ctx is done, or the stream is down
			return s.answer(session, one)
		default:
		}
		select {
		case <-one.done:
			return s.answer(session, one)
		case <-ctx.Done():
			return nil, s.unansweredError(ctx, session)
		case <-down:
			if err := s.Err(); err != nil {
				return nil, err
			} // else another goroutine has reconnected meanwhile
		}
	}
}

func (s *DecodeStream) answer(session *Session, one *waiting) (*Directive, error) {
	s.mu.Lock()
	if s.unanswered[session.ID] == one {
		delete(s.unanswered, session.ID)
	}
	s.mu.Unlock()
	if one.err != nil {
		return nil, one.err
	}
	session.Directive = one.directive
	return one.directive, nil
}

// Forget drops a session's unanswered Step and its answer, if any: for a session that nobody continues.
func (s *DecodeStream) Forget(id SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unanswered, id)
}

// Err tells why the stream gave up: what is wrong with the stream itself, or [ErrStreamClosed]; nil while it stands or
// tries to.
func (s *DecodeStream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Broken tells why the stream has no connection just now; nil while it has one.
func (s *DecodeStream) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Reconnect tries again after the stream gave up, and its reason was mended, say by registering the vocabulary; what is
// unanswered is sent again. Before that it changes nothing. It fails for a closed stream.
func (s *DecodeStream) Reconnect() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStreamClosed
	}
	if s.failed == nil {
		return nil
	}
	if err := s.parent.Err(); err != nil {
		return s.failed
	}
	s.start()
	return nil
}

// Close ends the stream, and waits until it has. Whoever takes gets [ErrStreamClosed]. May be called twice.
func (s *DecodeStream) Close() error {
	s.mu.Lock()
	s.closed = true
	cancel, ended := s.cancel, s.ended
	s.mu.Unlock()
	cancel()
	<-ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = ErrStreamClosed
	return nil
}

// start begins a run loop. Under the lock, or before anybody else knows of the stream.
func (s *DecodeStream) start() {
	ctx, cancel := context.WithCancel(s.parent)
	s.failed, s.cancel = nil, cancel
	s.down, s.ended = make(chan struct{}), make(chan struct{})
	go s.run(ctx, s.ended)
}

// run holds one connection after the other, until ctx is done or one fails for good.
func (s *DecodeStream) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	var pauses backoff
	for {
		answered, err := s.connect(ctx)
		if ctx.Err() != nil {
			s.giveUp(fmt.Errorf("%w: %w", ErrStreamClosed, context.Cause(ctx)))
			return
		}
		if !IsRetryable(err) {
			s.giveUp(err)
			return
		}
		s.mu.Lock()
		s.broken = err
		s.mu.Unlock()
		if answered {
			pauses.reset()
		}
		sleep(ctx, pauses.after(err))
	}
}

func (s *DecodeStream) giveUp(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		err = ErrStreamClosed
	}
	s.failed, s.broken = err, err
	close(s.down)
	s.cancel()
}

// queue hands Steps to the writer. Under the lock.
func (s *DecodeStream) queue(steps ...*waiting) {
	if len(steps) == 0 {
		return
	}
	s.outbox = append(s.outbox, steps...)
	select {
	case s.ready <- struct{}{}:
	default: // it is awake already
	}
}

// queueAll is what a new connection begins with: every Step without an answer, in the order of their sessions' ids.
func (s *DecodeStream) queueAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox, s.broken = nil, nil
	s.connections++
	var again []*waiting
	for _, one := range s.unanswered {
		if !one.isDone() {
			one.resent = one.resent || one.sent
			again = append(again, one)
		}
	}
	slices.SortFunc(again, func(a, b *waiting) int { return slices.Compare(a.id[:], b.id[:]) })
	s.queue(again...)
}

// takeOutbox gives the Steps to be written now: those that nobody forgot meanwhile.
func (s *DecodeStream) takeOutbox() []*pb.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var steps []*pb.Step
	for _, one := range s.outbox {
		if s.unanswered[one.id] == one && !one.isDone() {
			one.sent = true
			steps = append(steps, one.step)
		}
	}
	s.outbox = nil
	return steps
}

func (w *waiting) isDone() bool { return w.directive != nil || w.err != nil }

func (s *DecodeStream) unansweredError(ctx context.Context, session *Session) error {
	state := "the stream stands"
	if broken := s.Broken(); broken != nil {
		state = "the stream is broken: " + broken.Error()
	}
	code := codes.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	message := fmt.Sprintf("no answer yet for the step of session %s at position %d; %s", session.ID, session.Position(), state)
	return errorOf(status.Error(code, message))
}
