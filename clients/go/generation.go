package constraintd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	runnerpb "github.com/constraintd/constraintd/clients/go/gen/constraintd/runner/v1"
)

// Generation is one running generation. One goroutine iterates over it, for its events or its text; any may close it.
//
// Iteration ends without an error only when the runner said Finished. Otherwise the last pair has the error, and Text
// is a fragment. Breaking out of a loop loses nothing: the next one goes on behind it.
type Generation struct {
	runner *Runner
	ctx    context.Context
	cancel context.CancelFunc

	id            SessionID
	resumable     bool
	exact         bool
	logprobs      *uint32
	resumeTimeout time.Duration
	// fromBeginning: it was begun by Generate, so that it can be begun again as long as nothing of it was seen.
	fromBeginning bool
	first         opener

	current       events
	address       string
	failure       error // of the attempt to begin, for the iteration to look at
	pauses        backoff
	brokenSince   time.Time
	seenTokens    uint64
	seenTextBytes uint64

	started  *Started
	finished *Finished
	failed   error
	text     strings.Builder
	tokens   []uint32
}

// events is one stream, of perhaps several that make up a generation.
type events interface {
	Recv() (*runnerpb.GenerateResponse, error)
}

type opener func(context.Context, runnerpb.GenerationServiceClient) (events, error)

func newGeneration(ctx context.Context, runner *Runner, id SessionID, first opener, request proto.Message) *Generation {
	g := &Generation{runner: runner, id: id, first: first}
	g.ctx, g.cancel = context.WithCancel(ctx)
	if request != nil {
		g.failed = sendable(request)
	}
	return g
}

// Events goes through what the runner tells: Started, Deltas, Finished.
func (g *Generation) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for g.finished == nil {
			event, err := g.next()
			if err != nil {
				yield(nil, err)
				return
			}
			if event != nil && !yield(event, nil) {
				break
			}
		}
		if g.finished != nil && g.ctx.Err() == nil {
			// To its status, so that the runner sees the call end in order and not cancelled.
			g.current.Recv()
			g.cancel()
		}
	}
}

// Texts goes through pieces of settled text, none empty, none splitting a character.
func (g *Generation) Texts() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for event, err := range g.Events() {
			if err != nil {
				yield("", err)
				return
			}
			if delta, ok := event.(*Delta); ok && delta.Text != "" && !yield(delta.Text, nil) {
				return
			}
		}
	}
}

// Wait runs to the end, for callers who want no pieces.
func (g *Generation) Wait() (*Finished, error) {
	for _, err := range g.Events() {
		if err != nil {
			return nil, err
		}
	}
	return g.finished, nil
}

// Close frees its place at the runner, if it still runs; whoever iterates gets an error that is context.Canceled. A
// resumable one can still be resumed.
func (g *Generation) Close() { g.cancel() }

// SessionID is the session's at the daemon: what Resume and CloseGeneration take.
func (g *Generation) SessionID() SessionID { return g.id }

// Started has the seed in force; nil before it came.
func (g *Generation) Started() *Started { return g.started }

// Finished is the end; nil before it came.
func (g *Generation) Finished() *Finished { return g.finished }

// Text is all settled text so far, of this object's events; final once Finished is there.
func (g *Generation) Text() string { return g.text.String() }

// Tokens are all tokens so far, of this object's events.
func (g *Generation) Tokens() []uint32 { return g.tokens }

// next gives the next event; nil for one that is nothing new to the caller.
func (g *Generation) next() (Event, error) {
	if g.failed != nil {
		return nil, g.failed
	}
	err := g.failure
	if err == nil {
		var message *runnerpb.GenerateResponse
		if message, err = g.current.Recv(); err == nil {
			return g.accept(message)
		}
	}
	g.failure = nil
	if errors.Is(err, io.EOF) {
		return nil, g.fail(ErrIncompleteGeneration)
	}
	if g.ctx.Err() != nil {
		return nil, g.fail(errorOf(g.ctx.Err()))
	}
	err = errorOf(err)
	leaveIfLost(g.runner.targets, g.address, err, g.ctx)
	return nil, g.goOn(err)
}

func (g *Generation) accept(message *runnerpb.GenerateResponse) (Event, error) {
	event, err := eventOf(message)
	if err != nil {
		return nil, g.fail(err)
	}
	switch event := event.(type) {
	case nil:
		return nil, nil
	case *Started:
		if g.started != nil {
			return nil, nil // it was resumed
		}
		g.started, g.id = event, event.SessionID
	case *Delta:
		g.tokens = append(g.tokens, event.Tokens...)
		g.text.WriteString(event.Text)
		g.seenTokens += uint64(len(event.Tokens))
		g.seenTextBytes += uint64(len(event.Text))
	case *Finished:
		g.finished = event
	}
	// Something new came: the next break is another one.
	g.brokenSince = time.Time{}
	g.pauses.reset()
	return event, nil
}

// goOn resumes after a break. It fails with the cause where that can't help, or the break has lasted too long.
func (g *Generation) goOn(cause error) error {
	// A session that isn't there, of which nothing was seen: the break came before it was opened.
	anew := g.fromBeginning && g.seenTokens == 0 && g.seenTextBytes == 0 && errors.Is(cause, ReasonUnknownSession)
	if !g.resumable || !(anew || IsRetryable(cause)) {
		return g.fail(cause)
	}
	now := time.Now()
	if g.brokenSince.IsZero() {
		g.brokenSince = now
	}
	pause := g.pauses.after(cause)
	if now.Add(pause).Sub(g.brokenSince) > g.resumeTimeout {
		return g.fail(fmt.Errorf("not resumed within %s: %w", g.resumeTimeout, cause))
	}
	if !sleep(g.ctx, pause) {
		return g.fail(errorOf(g.ctx.Err()))
	}
	if anew {
		g.begin(g.first)
	} else {
		g.begin(g.resume)
	}
	return nil
}

func (g *Generation) resume(ctx context.Context, client runnerpb.GenerationServiceClient) (events, error) {
	return client.ResumeGeneration(ctx, &runnerpb.ResumeGenerationRequest{
		SessionId: g.id[:], SeenTokens: g.seenTokens, SeenTextBytes: g.seenTextBytes, Exact: g.exact, Logprobs: g.logprobs,
	})
}

// begin opens a stream at the present target. What goes wrong shows in next.
func (g *Generation) begin(open opener) {
	if g.failed != nil {
		return
	}
	address, connection, err := g.runner.targets.connection()
	g.address = address
	if err != nil {
		g.failed = err
		return
	}
	g.current, g.failure = open(g.ctx, runnerpb.NewGenerationServiceClient(connection))
}

func (g *Generation) fail(err error) error {
	g.failed = err
	g.cancel()
	return err
}
