package constraintd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 20 * time.Millisecond
	pauseCap   = time.Second
)

// backoff gives the pauses of one series of attempts: exponential, with full jitter, so that many clients that lost one
// server in the same instant don't come back to it in the same instant (Brooker, "Exponential Backoff and Jitter", AWS
// Architecture Blog, 2015). The n-th pause, counted from 0, is random in [0, min(cap, first * 2^n)).
type backoff struct {
	bound time.Duration
}

func (b *backoff) next() time.Duration {
	bound := min(max(b.bound, firstPause), pauseCap)
	b.bound = bound * 2
	return rand.N(bound)
}

func (b *backoff) reset() { b.bound = 0 }

// after is the pause before the next attempt behind this error: what the server asked for, at least.
func (b *backoff) after(err error) time.Duration {
	pause := b.next()
	if refused, ok := errors.AsType[*Error](err); ok {
		pause = max(pause, refused.RetryDelay)
	}
	return pause
}

// sleep waits, and tells whether ctx was still alive at the end.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Retry calls until it succeeds, is refused with an error that is not retryable, or ctx is done; it then gives the last
// error. It pauses in between, longer each time. Calls that change something must name their ids (a session's, a
// request's) outside of call, so that every attempt is the same request.
func Retry(ctx context.Context, call func(context.Context) error) error {
	var pauses backoff
	for {
		err := call(ctx)
		if err == nil || !IsRetryable(err) || ctx.Err() != nil || !sleep(ctx, pauses.after(err)) {
			return err
		}
	}
}
