package main

import (
	"context"
	"encoding/json"

	"github.com/constraintd/constraintd/clients/go"
)

func connectRunner(_ context.Context, place *held, asked *request) (any, error) {
	runner, err := constraintd.NewRunner(asked.Targets, asked.options()...)
	if err == nil {
		place.runners[orMain(asked.Runner)] = runner
	}
	return nil, err
}

func generate(ctx context.Context, place *held, asked *request) (any, error) {
	runner, err := place.runner(asked)
	if err != nil {
		return nil, err
	}
	wanted := constraintd.GenerateRequest{Logprobs: asked.Logprobs, Resumable: asked.Resumable}
	if wanted.Prompt, err = asked.prompt(); err != nil {
		return nil, err
	}
	if wanted.SessionID, err = asked.id(); err != nil {
		return nil, err
	}
	if wanted.Constraint, err = asked.constraint(); err != nil {
		return nil, err
	}
	if wanted.Sampler, err = asked.sampler(); err != nil {
		return nil, err
	}
	ctx, done := asked.bounded(ctx)
	place.keep(asked.Generation, runner.Generate(ctx, wanted), done)
	return nil, nil
}

// bounded is a context with the request's deadline, if it has one.
func (r *request) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.TimeoutMs == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.timeout(0))
}

// prompt is text, token ids, or a chat.
func (r *request) prompt() (constraintd.Prompt, error) {
	var text string
	if json.Unmarshal(r.Prompt, &text) == nil {
		return constraintd.TextPrompt(text), nil
	}
	var ids []uint32
	if json.Unmarshal(r.Prompt, &ids) == nil {
		return constraintd.TokenPrompt(ids...), nil
	}
	var messages []constraintd.Message
	if err := json.Unmarshal(r.Prompt, &messages); err != nil {
		return nil, adapterError{err.Error()}
	}
	return constraintd.ChatPrompt(messages...), nil
}

func resumeGeneration(ctx context.Context, place *held, asked *request) (any, error) {
	runner, err := place.runner(asked)
	if err != nil {
		return nil, err
	}
	id, err := asked.id()
	if err != nil {
		return nil, err
	}
	ctx, done := asked.bounded(ctx)
	place.keep(asked.Generation, runner.Resume(ctx, constraintd.ResumeRequest{
		SessionID: id, SeenTokens: asked.SeenTokens, SeenTextBytes: asked.SeenTextBytes, Exact: asked.Exact,
	}), done)
	return nil, nil
}

// events gives the next ones: so many, or all that are left.
func events(_ context.Context, place *held, asked *request) (any, error) {
	running, err := named(place.generations, asked.Generation)
	if err != nil {
		return nil, err
	}
	told := []object{}
	for asked.Count == nil || len(told) < *asked.Count {
		event, err, more := running.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		told = append(told, spelledEvent(event))
	}
	return object{"events": told, "text": running.Text(), "tokens": orEmpty(running.Tokens())}, nil
}

func cancel(_ context.Context, place *held, asked *request) (any, error) {
	running, err := named(place.generations, asked.Generation)
	if err == nil {
		running.Close()
	}
	return nil, err
}

func closeGeneration(ctx context.Context, place *held, asked *request) (any, error) {
	runner, err := place.runner(asked)
	if err != nil {
		return nil, err
	}
	id, err := asked.id()
	if err != nil {
		return nil, err
	}
	closed, err := runner.CloseGeneration(ctx, id)
	return object{"closed": closed}, err
}

func modelInfo(ctx context.Context, place *held, asked *request) (any, error) {
	runner, err := place.runner(asked)
	if err != nil {
		return nil, err
	}
	info, err := runner.ModelInfo(ctx)
	return object{
		"vocabulary_id": info.GetVocabularyId(), "logits_width": info.GetLogitsWidth(), "context": info.GetContextLength(),
	}, err
}
