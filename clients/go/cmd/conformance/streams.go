package main

import (
	"context"
	"time"

	"github.com/constraintd/constraintd/clients/go"
)

func stream(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	opened, err := daemon.Decode(ctx, asked.VocabularyID, asked.LogitsWidth)
	if err == nil {
		place.streams[asked.Stream] = opened
	}
	return nil, err
}

func send(_ context.Context, place *held, asked *request) (any, error) {
	opened, err := named(place.streams, asked.Stream)
	if err != nil {
		return nil, err
	}
	var reports []constraintd.Report
	for _, each := range asked.Steps {
		session, err := named(place.sessions, each.Session)
		if err != nil {
			return nil, err
		}
		reports = append(reports, constraintd.Report{Session: session, Tokens: each.Tokens, Surprisals: each.Surprisals})
	}
	return nil, opened.Send(reports...)
}

func take(ctx context.Context, place *held, asked *request) (any, error) {
	opened, err := named(place.streams, asked.Stream)
	if err != nil {
		return nil, err
	}
	session, err := named(place.sessions, asked.Session)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, asked.timeout(30*time.Second))
	defer done()
	if _, err := opened.Take(ctx, session); err != nil {
		return nil, err
	}
	return spelledSession(session), nil
}

func forget(_ context.Context, place *held, asked *request) (any, error) {
	opened, err := named(place.streams, asked.Stream)
	if err != nil {
		return nil, err
	}
	session, err := named(place.sessions, asked.Session)
	if err == nil {
		opened.Forget(session.ID)
	}
	return nil, err
}

func reconnect(_ context.Context, place *held, asked *request) (any, error) {
	opened, err := named(place.streams, asked.Stream)
	if err != nil {
		return nil, err
	}
	return nil, opened.Reconnect()
}

func closeStream(_ context.Context, place *held, asked *request) (any, error) {
	opened, err := named(place.streams, asked.Stream)
	if err != nil {
		return nil, err
	}
	return nil, opened.Close()
}
