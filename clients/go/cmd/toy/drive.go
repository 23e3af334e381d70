package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/internal/bytevocabulary"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

// driver holds the connection, and how long the daemon may be away at a time.
type driver struct {
	daemon   *constraintd.Daemon
	patience time.Duration
}

// seat is a session that is being driven.
type seat struct {
	session *constraintd.Session
	chain   *sampling.Chain
	hash    tokenHash
	tokens  []uint32
	next    sampling.Picked
}

// drive runs all sessions to their ends. A session that is open at the daemon already goes on where it stands.
func drive(ctx context.Context, targets []string, plans []plan, patience time.Duration) ([]result, error) {
	daemon, err := constraintd.NewDaemon(targets)
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	d := &driver{daemon, patience}
	vocabulary, err := d.register(ctx)
	if err != nil {
		return nil, err
	}
	seats := make([]*seat, len(plans))
	for i, plan := range plans {
		if seats[i], err = d.sit(ctx, vocabulary, plan); err != nil {
			return nil, fmt.Errorf("session %s: %w", plan.id, err)
		}
	}
	var stream *constraintd.DecodeStream
	if err := d.retry(ctx, func(ctx2 context.Context) (err error) {
		// The stream outlives the attempts.
		stream, err = daemon.Decode(ctx, vocabulary.ID, vocabulary.LogitsWidth)
		return err
	}); err != nil {
		return nil, err
	}
	defer stream.Close()
	if err := d.run(ctx, stream, seats, make([]float32, vocabulary.LogitsWidth)); err != nil {
		return nil, err
	}
	results := make([]result, len(seats))
	for i, seat := range seats {
		results[i] = result{seat.session.ID.String(), append([]uint32{}, seat.tokens...), "dead_end"}
		if finish := seat.session.Directive.Finish; finish != nil {
			results[i].Finish = string(finish.Reason)
		}
	}
	return results, nil
}

// retry calls again while the daemon is away, for as long as patience lasts.
func (d *driver) retry(ctx context.Context, call func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return constraintd.Retry(bounded, call)
}

func (d *driver) register(ctx context.Context) (vocabulary *constraintd.Vocabulary, err error) {
	err = d.retry(ctx, func(ctx context.Context) (err error) {
		vocabulary, err = d.daemon.RegisterTokenTable(ctx, bytevocabulary.Table(), bytevocabulary.EOGIDs(), bytevocabulary.Width)
		return err
	})
	return vocabulary, err
}

// sit takes a session over, or opens it where there is none.
func (d *driver) sit(ctx context.Context, vocabulary *constraintd.Vocabulary, plan plan) (*seat, error) {
	taken := &seat{hash: tokenHash(fnvOffset).after(plan.prompt...)}
	err := d.retry(ctx, func(ctx context.Context) error {
		resumed, err := d.daemon.ResumeSession(ctx, plan.id)
		if err == nil {
			taken.session, taken.tokens = resumed.Session, resumed.Tokens
			return nil
		}
		if errors.Is(err, constraintd.ReasonUnknownSession) {
			taken.session, err = d.daemon.OpenSession(ctx, constraintd.OpenRequest{
				VocabularyID: vocabulary.ID, Constraint: plan.constraint, Sampler: plan.sampler, PromptTokens: plan.prompt,
				SessionID: plan.id,
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	taken.hash = taken.hash.after(taken.tokens...)
	taken.chain, err = constraintd.ChainOf(taken.session.Sampler)
	return taken, err
}

// run is the decode loop: one batch an iteration, for all sessions that have a mask.
func (d *driver) run(ctx context.Context, stream *constraintd.DecodeStream, seats []*seat, logits []float32) error {
	for {
		var live []*seat
		var reports []constraintd.Report
		for _, seat := range seats {
			if seat.session.Directive.Mask == nil {
				continue
			}
			seat.hash.fill(logits)
			var err error
			if seat.next, err = seat.session.Directive.Pick(seat.chain, logits); err != nil {
				return fmt.Errorf("session %s: %w", seat.session.ID, err)
			}
			live, reports = append(live, seat), append(reports, seat.report())
		}
		if len(live) == 0 {
			return nil
		}
		if err := stream.Send(reports...); err != nil {
			return err
		}
		for _, seat := range live {
			if err := d.take(ctx, stream, seat); err != nil {
				return fmt.Errorf("session %s: %w", seat.session.ID, err)
			}
			seat.tokens = append(seat.tokens, seat.next.Token)
			seat.hash = seat.hash.after(seat.next.Token)
		}
	}
}

func (s *seat) report() constraintd.Report {
	return constraintd.Report{
		Session: s.session, Tokens: []uint32{s.next.Token}, Surprisals: []float32{s.next.Surprisal},
	}
}

// take waits for a session's answer. What passes by itself is asked for again; a vocabulary that the daemon has
// forgotten is registered again.
func (d *driver) take(ctx context.Context, stream *constraintd.DecodeStream, seat *seat) error {
	bounded, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return constraintd.Retry(bounded, func(ctx context.Context) error {
		_, err := stream.Take(ctx, seat.session)
		switch {
		case errors.Is(err, constraintd.ErrNothingSent): // the last answer was a refusal that passes by itself
			if err = stream.Send(seat.report()); err == nil {
				_, err = stream.Take(ctx, seat.session)
			}
		case errors.Is(err, constraintd.ReasonUnknownVocabulary) && stream.Err() != nil:
			if _, err = d.register(ctx); err == nil {
				err = stream.Reconnect()
			}
			if err == nil {
				_, err = stream.Take(ctx, seat.session)
			}
		}
		return err
	})
}
