package main

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/constraintd/constraintd/clients/go"
	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// options say how a client shows who it is.
func (r *request) options() []constraintd.Option {
	var options []constraintd.Option
	if r.TimeoutMs != nil {
		options = append(options, constraintd.WithCallTimeout(r.timeout(0)))
	}
	if r.Token != "" {
		options = append(options, constraintd.WithToken(r.Token))
	}
	if r.TLS != nil {
		options = append(options, constraintd.WithTLS(constraintd.TLS{
			CAFile: r.TLS.CA, CertFile: r.TLS.Cert, KeyFile: r.TLS.Key,
		}))
	}
	return options
}

func connect(_ context.Context, place *held, asked *request) (any, error) {
	daemon, err := constraintd.NewDaemon(asked.Targets, asked.options()...)
	if err == nil {
		place.daemons[orMain(asked.Client)] = daemon
	}
	return nil, err
}

func register(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	var spellings []*hexBytes
	if err := json.Unmarshal(asked.Tokens, &spellings); err != nil {
		return nil, adapterError{err.Error()}
	}
	table := constraintd.TokenTable{Tokens: make([][]byte, len(spellings)), Special: asked.Special}
	for id, spelling := range spellings {
		if spelling != nil {
			table.Tokens[id] = append([]byte{}, *spelling...)
		}
	}
	made, err := daemon.RegisterTokenTable(ctx, table, asked.EOGIDs, asked.LogitsWidth)
	if err != nil {
		return nil, err
	}
	return object{
		"vocabulary_id": made.ID, "token_count": made.TokenCount, "logits_width": made.LogitsWidth, "eog_ids": made.EOGIDs,
		"has_encoder": made.HasEncoder,
	}, nil
}

func tokenTable(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	table, _, err := daemon.TokenTable(ctx, asked.VocabularyID)
	if err != nil {
		return nil, err
	}
	spellings := make([]string, len(table.Tokens))
	for id, token := range table.Tokens {
		spellings[id] = hex.EncodeToString(token)
	}
	return object{"tokens": spellings, "special": table.Special, "text": hexBytes(table.Text(asked.Spell))}, nil
}

func compile(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	message, err := parsed(asked.Grammar, &pb.Grammar{})
	if err != nil {
		return nil, err
	}
	compiled, err := daemon.CompileGrammar(
		ctx, asked.VocabularyID, constraintd.GrammarOf(message), constraintd.CompileLimits{})
	if err != nil {
		return nil, err
	}
	report := [][]any{}
	for _, each := range compiled.Report {
		report = append(report, []any{each.Pointer, each.Keyword, each.Verdict})
	}
	return object{"grammar_id": compiled.ID, "report": report}, nil
}

func open(ctx context.Context, place *held, asked *request) (any, error) {
	daemon, err := place.daemon(asked)
	if err != nil {
		return nil, err
	}
	opening := constraintd.OpenRequest{VocabularyID: asked.VocabularyID, PromptTokens: asked.PromptTokens}
	if opening.SessionID, err = asked.id(); err != nil {
		return nil, err
	}
	if opening.Constraint, err = asked.constraint(); err != nil {
		return nil, err
	}
	if opening.Sampler, err = asked.sampler(); err != nil {
		return nil, err
	}
	session, err := daemon.OpenSession(ctx, opening)
	return place.holds(asked.Session, session, err)
}

// holds keeps a session under its name, and spells it.
func (h *held) holds(name string, session *constraintd.Session, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	h.sessions[name] = session
	return spelledSession(session), nil
}

// handle makes another handle of a session, as somebody holds it who knows another place.
func handle(_ context.Context, place *held, asked *request) (any, error) {
	known, err := named(place.sessions, asked.Of)
	if err != nil {
		return nil, err
	}
	session, directive := *known, *known.Directive
	if asked.Epoch != nil {
		session.Epoch = *asked.Epoch
	}
	if asked.Position != nil {
		directive.Position = *asked.Position
	}
	session.Directive = &directive
	return place.holds(asked.Session, &session, nil)
}

func step(ctx context.Context, place *held, asked *request) (any, error) {
	return place.move(asked, func(daemon *constraintd.Daemon, session *constraintd.Session) error {
		tokens, err := asked.tokens()
		if err == nil {
			report := constraintd.Report{
				Session: session, Tokens: tokens, Surprisals: asked.Surprisals, Passes: asked.Passes,
			}
			_, err = daemon.Step(ctx, report)
		}
		return err
	})
}

// move makes a call that moves the session on which the request names.
func (h *held) move(asked *request, call func(*constraintd.Daemon, *constraintd.Session) error) (any, error) {
	daemon, err := h.daemon(asked)
	if err != nil {
		return nil, err
	}
	session, err := named(h.sessions, asked.Session)
	if err == nil {
		err = call(daemon, session)
	}
	if err != nil {
		return nil, err
	}
	return spelledSession(session), nil
}

func update(ctx context.Context, place *held, asked *request) (any, error) {
	return place.move(asked, func(daemon *constraintd.Daemon, session *constraintd.Session) (err error) {
		changes := constraintd.UpdateRequest{Seed: asked.Seed}
		if asked.NewTurn != nil {
			changes.NewTurn = &constraintd.NewTurn{PromptTokens: *asked.NewTurn}
		}
		if changes.Constraint, err = asked.constraint(); err != nil {
			return err
		}
		if changes.Sampler, err = asked.sampler(); err != nil {
			return err
		}
		if changes.RequestID, err = asked.requestID(); err != nil {
			return err
		}
		_, err = daemon.UpdateSession(ctx, session, changes)
		return err
	})
}

func rollback(ctx context.Context, place *held, asked *request) (any, error) {
	return place.move(asked, func(daemon *constraintd.Daemon, session *constraintd.Session) error {
		id, err := asked.requestID()
		if err == nil {
			change := constraintd.RollbackRequest{ToPosition: asked.ToPosition, Seed: asked.Seed, RequestID: id}
			_, err = daemon.RollbackSession(ctx, session, change)
		}
		return err
	})
}
