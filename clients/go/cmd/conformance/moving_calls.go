package main

import (
	"context"

	"github.com/constraintd/constraintd/clients/go"
)

// The calls that open sessions from others, and those that only look.

func fork(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	parent, err := named(place.sessions, asked.Of)
	if err != nil {
		return nil, err
	}
	id, err := asked.id()
	if err != nil {
		return nil, err
	}
	way := constraintd.ForkRequest{Position: *asked.Position, NewSessionID: id, Seed: asked.Seed}
	session, err := daemon.ForkSession(ctx, parent.ID, way)
	return place.holds(asked.Session, session, err)
}

func resume(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	id, err := asked.id()
	if err != nil {
		return nil, err
	}
	taken, err := daemon.ResumeSession(ctx, id)
	if err != nil {
		return nil, err
	}
	place.sessions[asked.Session] = taken.Session
	turns := [][]any{}
	for _, turn := range taken.Turns {
		turns = append(turns, []any{turn.Position, orEmpty(turn.PromptTokens)})
	}
	spelled := spelledSession(taken.Session)
	spelled["vocabulary_id"], spelled["turns"] = taken.VocabularyID, turns
	spelled["tokens"], spelled["passes"] = orEmpty(taken.Tokens), orEmpty(taken.Passes)
	spelled["model_input"] = orEmpty(taken.ModelInput())
	return spelled, nil
}

// look makes a call about the session that the request names.
func (h *held) look(asked *request, call func(*constraintd.Daemon, constraintd.SessionID) (object, error)) (any, error) {
	daemon, err := h.daemon(asked)
	if err != nil {
		return nil, err
	}
	session, err := named(h.sessions, asked.Session)
	if err != nil {
		return nil, err
	}
	return call(daemon, session.ID)
}

func export(ctx context.Context, place *held, asked *request) (any, error) {
	return place.look(asked, func(daemon *constraintd.Daemon, id constraintd.SessionID) (object, error) {
		envelope, err := daemon.ExportSession(ctx, id)
		return object{"envelope": hexBytes(envelope)}, err
	})
}

func importSession(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	session, err := daemon.ImportSession(ctx, asked.Envelope)
	return place.holds(asked.Session, session, err)
}

func closeSession(ctx context.Context, place *held, asked *request) (any, error) {
	return place.look(asked, func(daemon *constraintd.Daemon, id constraintd.SessionID) (object, error) {
		closed, err := daemon.CloseSession(ctx, id)
		return object{"closed": closed}, err
	})
}

func get(ctx context.Context, place *held, asked *request) (any, error) {
	return place.look(asked, func(daemon *constraintd.Daemon, id constraintd.SessionID) (object, error) {
		known, err := daemon.GetSession(ctx, id)
		return object{
			"tokens": orEmpty(known.GetTokens()), "surprisals": orEmpty(known.GetSurprisals()),
			"position": known.GetSession().GetPosition(),
		}, err
	})
}

func list(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	ids := []hexBytes{}
	for session, err := range daemon.ListSessions(ctx) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, session.GetSessionId())
	}
	return object{"session_ids": ids}, nil
}
