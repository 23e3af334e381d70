package constraintd

import (
	"errors"
	"fmt"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

// ChainOf gives the chain of a config, defaults filled in. It takes the config in force, as [Session] has it: a preset
// is spelled out by the daemon, never here. deny_ranges are rules of the mask, and no stages. Fails, naming the field,
// for a stage that is newer than this client.
func ChainOf(config *SamplerConfig) (*sampling.Chain, error) {
	if config.GetPreset() != nil {
		return nil, errors.New("sampler.preset: only the daemon spells presets out; use the config that it answered with")
	}
	var stages []sampling.Stage
	for i, message := range config.GetStages() {
		if message.GetDenyRanges() != nil {
			continue
		}
		stage, err := stageOf(message)
		if err == nil {
			err = stage.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("sampler.stages[%d]: %w", i, err)
		}
		stages = append(stages, stage)
	}
	chain, err := sampling.NewChain(stages...)
	if err != nil {
		return nil, fmt.Errorf("sampler.stages: %w", err)
	}
	return chain, nil
}

func stageOf(message *SamplerStage) (sampling.Stage, error) {
	switch stage := message.GetStage().(type) {
	case *pb.SamplerStage_Greedy:
		return sampling.Greedy{}, nil
	case *pb.SamplerStage_Temperature:
		return sampling.Temperature{Temperature: stage.Temperature.GetTemperature()}, nil
	case *pb.SamplerStage_TopK:
		return sampling.TopK{K: stage.TopK.GetK()}, nil
	case *pb.SamplerStage_TopP:
		return sampling.TopP{P: stage.TopP.GetP()}, nil
	case *pb.SamplerStage_MinP:
		return sampling.MinP{P: stage.MinP.GetP()}, nil
	case *pb.SamplerStage_TypicalP:
		return sampling.TypicalP{P: stage.TypicalP.GetP()}, nil
	case *pb.SamplerStage_TailFree:
		return sampling.TailFree{Z: stage.TailFree.GetZ()}, nil
	case *pb.SamplerStage_SplitP:
		return sampling.SplitP{MinKeep: or(stage.SplitP.MinKeep, 1), MaxKeep: or(stage.SplitP.MaxKeep, 50)}, nil
	case *pb.SamplerStage_SplitL:
		return sampling.SplitL{MinKeep: or(stage.SplitL.MinKeep, 1), MaxKeep: or(stage.SplitL.MaxKeep, 50)}, nil
	case *pb.SamplerStage_MirostatV1:
		return sampling.MirostatV1{MaxKeep: or(stage.MirostatV1.MaxKeep, 100)}, nil
	case *pb.SamplerStage_MirostatV2:
		return sampling.MirostatV2{MaxKeep: or(stage.MirostatV2.MaxKeep, 100)}, nil
	case *pb.SamplerStage_LogitBias:
		return sampling.LogitBias{IDs: stage.LogitBias.GetIds(), Biases: stage.LogitBias.GetBiases()}, nil
	}
	return nil, errors.New("the stage is empty, or newer than this client")
}

func or[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}
