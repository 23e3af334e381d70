package constraintd

import (
	"encoding/json"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// ToolFormat is a wire format of tool calls: one that has a name, or a [ToolTemplate].
type ToolFormat interface {
	writeTo(*pb.ToolCalls)
}

type namedFormat pb.ToolCallFormat

func (f namedFormat) writeTo(calls *pb.ToolCalls) {
	calls.WireFormat = &pb.ToolCalls_Format{Format: pb.ToolCallFormat(f)}
}

const (
	// FormatHermes is that of Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>.
	FormatHermes = namedFormat(pb.ToolCallFormat_TOOL_CALL_FORMAT_HERMES)
	// FormatLlama3JSON is that of Llama 3: {"name": ..., "parameters": {...}}.
	FormatLlama3JSON = namedFormat(pb.ToolCallFormat_TOOL_CALL_FORMAT_LLAMA3_JSON)
	// FormatMistral is that of Mistral 7B v0.3 and Nemo: [TOOL_CALLS] [{"name": ..., "arguments": {...}}].
	FormatMistral = namedFormat(pb.ToolCallFormat_TOOL_CALL_FORMAT_MISTRAL)
	// FormatMistralArgs is that of Mistral Small 3.2 and later: [TOOL_CALLS]name[ARGS]{...}.
	FormatMistralArgs = namedFormat(pb.ToolCallFormat_TOOL_CALL_FORMAT_MISTRAL_ARGS)
)

// ToolTemplate is a wire format of one's own: a JSON object between two markers.
type ToolTemplate struct {
	// Begin stands before each call. A marker that is exactly one special token is that token. Required.
	Begin string
	// End stands after each call.
	End string
	// NameKey is the member of the function's name; "name" if empty.
	NameKey string
	// ArgumentsKey is the member of its arguments; "arguments" if empty.
	ArgumentsKey string
	// Separator stands between two calls.
	Separator string
}

func (t ToolTemplate) writeTo(calls *pb.ToolCalls) {
	calls.WireFormat = &pb.ToolCalls_Template{Template: &pb.ToolCallTemplate{
		Begin: []byte(t.Begin), End: []byte(t.End), NameKey: []byte(t.NameKey),
		ArgumentsKey: []byte(t.ArgumentsKey), Separator: []byte(t.Separator),
	}}
}

// ToolChoice says whether tools are called.
type ToolChoice string

const (
	// ToolsAuto is free text that may have calls. The default.
	ToolsAuto ToolChoice = "auto"
	// ToolsRequired is calls and nothing else.
	ToolsRequired ToolChoice = "required"
	// ToolsNone is free text without calls.
	ToolsNone ToolChoice = "none"
)

// ToolNamed is exactly one call of this function.
func ToolNamed(function string) ToolChoice {
	// A string always has a JSON text.
	name, _ := json.Marshal(function)
	return ToolChoice(`{"type":"function","function":{"name":` + string(name) + `}}`)
}

// ToolCallOptions are the parts of [ToolCalls] that have defaults.
type ToolCallOptions struct {
	// Choice is ToolsAuto by default.
	Choice ToolChoice
	// Single is at most one call an answer.
	Single bool
	// JSON options, for the arguments.
	JSON *JSONOptions
}

// ToolCalls is calls of OpenAI-style tools, a JSON list of {"type": "function", "function": {...}}; format says how the
// model writes them.
func ToolCalls[T Text](tools T, format ToolFormat, options ToolCallOptions) Constraint {
	calls := &pb.ToolCalls{
		Tools: []byte(tools), ToolChoice: []byte(options.Choice), Single: options.Single, JsonOptions: options.JSON,
	}
	if format != nil {
		format.writeTo(calls)
	}
	return composed{&pb.Constraint{Kind: &pb.Constraint_ToolCalls{ToolCalls: calls}}}
}
