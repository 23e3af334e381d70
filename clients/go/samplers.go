package constraintd

import (
	"maps"
	"slices"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// How a token is picked from the masked logits, and when a session ends: the protocol's messages, whose fields it
// documents. new(...) sets the optional ones:
//
//	&constraintd.SamplerConfig{
//		Stages:    []*constraintd.SamplerStage{constraintd.TopK(40), constraintd.Temperature(0.7)},
//		MaxTokens: new(uint32(100)),
//	}
type (
	SamplerConfig = pb.SamplerConfig
	SamplerStage  = pb.SamplerStage
	SamplerPreset = pb.SamplerPreset
	WindowPenalty = pb.WindowPenalty
	NGramPenalty  = pb.NGramPenalty
	IgnoredNGrams = pb.IgnoredNGrams
)

// What the fields of an NGramPenalty and of its IgnoredNGrams may say.
const (
	// PenaltySurgical punishes the token with which a repeated n-gram would go on from here. The default.
	PenaltySurgical = pb.PenaltyMode_PENALTY_MODE_SURGICAL
	// PenaltyBroad punishes the last token of every n-gram.
	PenaltyBroad = pb.PenaltyMode_PENALTY_MODE_BROAD

	// IgnoreCommonWords is the most common English function words.
	IgnoreCommonWords = pb.IgnoredSet_IGNORED_SET_COMMON_WORDS
	// IgnoreJSONPunctuation is braces, brackets, colons, commas, quotes and their usual joins.
	IgnoreJSONPunctuation = pb.IgnoredSet_IGNORED_SET_JSON_PUNCTUATION
	// IgnoreStopTokens is EOG ids and the config's stop ids.
	IgnoreStopTokens = pb.IgnoredSet_IGNORED_SET_STOP_TOKENS
)

// Greedy takes the highest logit, ties by the lowest id. Ends the chain.
func Greedy() *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_Greedy{Greedy: &pb.Greedy{}}}
}

// Temperature divides the logits by value, finite and >= 0; 0 is greedy.
func Temperature(value float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_Temperature{Temperature: &pb.Temperature{Temperature: value}}}
}

// TopK keeps the k >= 1 highest logits.
func TopK(k uint32) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_TopK{TopK: &pb.TopK{K: k}}}
}

// TopP keeps the smallest set of most probable tokens whose probability reaches p, in (0, 1].
func TopP(p float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_TopP{TopP: &pb.TopP{P: p}}}
}

// MinP keeps tokens whose probability is at least p, in [0, 1], times that of the most probable one.
func MinP(p float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_MinP{MinP: &pb.MinP{P: p}}}
}

// TypicalP keeps the smallest set whose probability reaches p, in (0, 1], those first whose surprisal is closest to the
// entropy.
func TypicalP(p float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_TypicalP{TypicalP: &pb.TypicalP{P: p}}}
}

// TailFree cuts off the tail, where the second differences of the sorted probabilities have come to z, in (0, 1].
func TailFree(z float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_TailFree{TailFree: &pb.TailFree{Z: z}}}
}

// SplitP keeps the most probable tokens up to the largest gap between neighbouring probabilities, at least least and at
// most most of them.
func SplitP(least, most uint32) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_SplitP{SplitP: &pb.SplitP{MinKeep: &least, MaxKeep: &most}}}
}

// SplitL does the same by gaps between neighbouring logits.
func SplitL(least, most uint32) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_SplitL{SplitL: &pb.SplitL{MinKeep: &least, MaxKeep: &most}}}
}

// MirostatV1 holds the surprisal near tau bits by an estimate of Zipf's exponent; eta is its learning rate.
func MirostatV1(tau, eta float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_MirostatV1{MirostatV1: &pb.MirostatV1{Tau: &tau, Eta: &eta}}}
}

// MirostatV2 holds the surprisal near tau bits by a cut that moves at the learning rate eta.
func MirostatV2(tau, eta float64) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_MirostatV2{MirostatV2: &pb.MirostatV2{Tau: &tau, Eta: &eta}}}
}

// LogitBias adds biases[id], finite, to the logit of each id; it makes no forbidden token legal.
func LogitBias(biases map[uint32]float64) *SamplerStage {
	bias := &pb.LogitBias{}
	for _, id := range slices.Sorted(maps.Keys(biases)) {
		bias.Ids, bias.Biases = append(bias.Ids, id), append(bias.Biases, biases[id])
	}
	return &pb.SamplerStage{Stage: &pb.SamplerStage_LogitBias{LogitBias: bias}}
}

// DenyRangesStage is none of the tokens of these ranges: a rule of the mask, whatever its place among the stages.
func DenyRangesStage(ranges ...IDRange) *SamplerStage {
	return &pb.SamplerStage{Stage: &pb.SamplerStage_DenyRanges{DenyRanges: idRanges(ranges)}}
}

// OpenAIPreset is a config in the words of OpenAI's requests: a JSON object such as {"temperature": 0.7}.
func OpenAIPreset[T Text](parameters T) *SamplerConfig {
	return preset(pb.PresetStyle_PRESET_STYLE_OPENAI, parameters)
}

// HuggingFacePreset is a config in the words of Hugging Face's GenerationConfig.
func HuggingFacePreset[T Text](parameters T) *SamplerConfig {
	return preset(pb.PresetStyle_PRESET_STYLE_HUGGING_FACE, parameters)
}

// LlamaCppPreset is a config in the words of llama.cpp's server.
func LlamaCppPreset[T Text](parameters T) *SamplerConfig {
	return preset(pb.PresetStyle_PRESET_STYLE_LLAMA_CPP, parameters)
}

func preset[T Text](style pb.PresetStyle, parameters T) *SamplerConfig {
	return &pb.SamplerConfig{Preset: &pb.SamplerPreset{Style: style, Parameters: []byte(parameters)}}
}
