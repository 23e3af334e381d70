package main

import (
	"context"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

func (r *request) row() []float32 {
	row := make([]float32, len(r.Logits))
	for i, logit := range r.Logits {
		row[i] = float32(logit)
	}
	return row
}

func mask(_ context.Context, _ *held, asked *request) (any, error) {
	words, err := sampling.MaskOf(asked.Mask)
	if err != nil {
		return nil, err
	}
	row := asked.row()
	if err := words.Apply(row); err != nil {
		return nil, err
	}
	masked := make([]number, len(row))
	for i, logit := range row {
		masked[i] = number(logit)
	}
	return object{"logits": masked, "allowed": words.IDs()}, nil
}

// pick picks by a session's sampler and Directive, or by the stages and the numbers of the request.
func pick(_ context.Context, place *held, asked *request) (any, error) {
	config, directive := &constraintd.SamplerConfig{}, &constraintd.Directive{}
	if asked.Session != "" {
		session, err := named(place.sessions, asked.Session)
		if err != nil {
			return nil, err
		}
		config, directive = session.Sampler, session.Directive
	} else {
		for _, text := range asked.Stages {
			stage, err := parsed(text, &constraintd.SamplerStage{})
			if err != nil {
				return nil, err
			}
			config.Stages = append(config.Stages, stage)
		}
		words, err := sampling.MaskOf(asked.Mask)
		if err != nil {
			return nil, err
		}
		directive.Mask, directive.Draw, directive.Adjustments, directive.Mu = words, asked.Draw, asked.Adjustments, asked.Mu
	}
	chain, err := constraintd.ChainOf(config)
	if err != nil {
		return nil, err
	}
	picked, err := directive.Pick(chain, asked.row())
	if err != nil {
		return nil, err
	}
	return object{"token": picked.Token, "surprisal": picked.Surprisal}, nil
}
