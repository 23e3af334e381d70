package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/constraintd/constraintd/clients/go"
	"github.com/constraintd/constraintd/clients/go/sampling"
)

// The client's values as the JSON that cases compare: the same in every language.

type object = map[string]any

func spelledSession(session *constraintd.Session) object {
	return object{
		"session_id": session.ID.String(),
		"epoch":      strconv.FormatUint(session.Epoch, 10),
		"seed":       strconv.FormatUint(session.Seed, 10),
		"directive":  spelledDirective(session.Directive),
	}
}

func spelledDirective(said *constraintd.Directive) object {
	spelled := object{
		"position": said.Position, "mask": nil, "finish": nil, "no_token_allowed": nil, "draw": said.Draw,
		"settled_bytes": said.SettledBytes, "mu": said.Mu, "adjustments": nil, "awaiting_trigger": said.AwaitingTrigger,
		"allows_eog": said.AllowsEOG, "complete": said.Complete, "exhausted": said.Exhausted,
	}
	if said.Mask != nil {
		dense := make(hexBytes, 0, 4*len(said.Mask))
		for _, word := range said.Mask {
			dense = append(dense, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
		}
		spelled["mask"] = dense
	}
	if said.Finish != nil {
		spelled["finish"] = spelledFinish(said.Finish)
	}
	if said.NoTokenAllowed != nil {
		spelled["no_token_allowed"] = said.NoTokenAllowed.Message
	}
	if changes := said.Adjustments; changes != nil {
		spelled["adjustments"] = object{"ids": changes.IDs, "scales": changes.Scales, "offsets": changes.Offsets}
	}
	return spelled
}

func spelledFinish(end *constraintd.Finish) object {
	return object{
		"reason": end.Reason, "stop_string": hexBytes(end.StopString), "stop_id": end.StopID, "cut_offset": end.CutOffset,
		"constraint_incomplete": end.ConstraintIncomplete, "schema_satisfied": end.SchemaSatisfied,
		"schema_violation": end.SchemaViolation,
	}
}

func spelledEvent(event constraintd.Event) object {
	switch told := event.(type) {
	case *constraintd.Started:
		return object{
			"event": "started", "session_id": told.SessionID.String(), "seed": strconv.FormatUint(told.Seed, 10),
			"prompt_tokens": told.PromptTokens,
		}
	case *constraintd.Delta:
		pair := func(one constraintd.TokenLogprob) []any { return []any{one.Token, one.Logprob} }
		logprobs := []object{}
		for _, each := range told.Logprobs {
			top := [][]any{}
			for _, one := range each.Top {
				top = append(top, pair(one))
			}
			logprobs = append(logprobs, object{"taken": pair(each.Taken), "top": top})
		}
		return object{"event": "delta", "tokens": orEmpty(told.Tokens), "text": told.Text, "logprobs": logprobs}
	case *constraintd.Finished:
		spelled := object{
			"event": "finished", "finish": spelledFinish(&told.Finish), "prompt_tokens": told.Usage.PromptTokens,
			"completion_tokens": told.Usage.CompletionTokens, "tool_answer": nil,
		}
		if answer := told.ToolAnswer; answer != nil {
			calls := []object{}
			for _, call := range answer.Calls {
				calls = append(calls, object{"name": call.Name, "arguments": call.Arguments})
			}
			spelled["tool_answer"] = object{"content": answer.Content, "calls": calls, "malformed": answer.Malformed}
		}
		return spelled
	}
	return object{"event": "unknown"}
}

// orEmpty keeps a list without elements from being null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// refusalOf says what went wrong; ADAPTER.md says what the kinds mean.
func refusalOf(err error, asked *request, place *held) object {
	fragment := ""
	if running, known := place.generations[asked.Generation]; known {
		fragment = running.Text()
	}
	spelled := object{"kind": "argument", "message": err.Error(), "fragment": fragment}
	refused, isRefused := errors.AsType[*constraintd.Error](err)
	_, isAdapter := errors.AsType[adapterError](err)
	switch {
	case isAdapter:
		spelled["kind"] = "adapter"
	case errors.Is(err, sampling.ErrNothingLeft), errors.Is(err, sampling.ErrBrokenLogits):
		spelled["kind"] = "sampling"
	case errors.Is(err, constraintd.ErrMalformedAnswer):
		spelled["kind"] = "malformed"
	case errors.Is(err, constraintd.ErrIncompleteGeneration):
		spelled["kind"] = "incomplete"
	case isRefused:
		spelled["kind"] = "refused"
		spelled["message"] = refused.Message
		spelled["reason"] = refused.Reason
		spelled["code"] = codeName(refused.Code)
		spelled["retryable"] = refused.Retryable()
		spelled["retry_after_ms"] = float64(refused.RetryDelay.Microseconds()) / 1000
		spelled["logged_tokens"] = orEmpty(refused.LoggedTokens())
		spelled["location"], spelled["field"] = refused.Location(), refused.Field()
		spelled["expected_position"], spelled["illegal_index"] = nil, nil
		if position, has := refused.ExpectedPosition(); has {
			spelled["expected_position"] = position
		}
		if index, has := refused.IllegalIndex(); has {
			spelled["illegal_index"] = index
		}
	}
	return spelled
}

var innerCapital = regexp.MustCompile(`([a-z])([A-Z])`)

// codeName is the protocol's spelling of a gRPC status.
func codeName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	return strings.ToUpper(innerCapital.ReplaceAllString(code.String(), "${1}_$2"))
}
