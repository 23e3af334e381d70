package constraintd

import (
	"encoding/json"

	runnerpb "github.com/constraintd/constraintd/clients/go/gen/constraintd/runner/v1"
)

// Prompt is what a generation goes on from.
type Prompt interface {
	writeTo(*runnerpb.GenerateRequest)
}

type textPrompt []byte

func (p textPrompt) writeTo(request *runnerpb.GenerateRequest) {
	request.Prompt = &runnerpb.GenerateRequest_Text{Text: p}
}

// TextPrompt is text; the tokenizer's BOS is added where it asks for one.
func TextPrompt[T Text](text T) Prompt { return textPrompt([]byte(text)) }

type tokenPrompt []uint32

func (p tokenPrompt) writeTo(request *runnerpb.GenerateRequest) {
	request.Prompt = &runnerpb.GenerateRequest_Tokens{Tokens: &runnerpb.TokenPrompt{Ids: p}}
}

// TokenPrompt is tokens, fed as they are.
func TokenPrompt(ids ...uint32) Prompt { return tokenPrompt(ids) }

// Message is one message of a chat.
type Message struct {
	// Role is who speaks, such as "system", "user", "assistant" or "tool".
	Role string
	// Content is what was said; empty for an answer that is tool calls alone.
	Content string
	// ToolCalls are those that an assistant's message made.
	ToolCalls []ToolCall
	// ToolCallID is the call that a tool's message answers.
	ToolCallID string
	// Name of the speaker, or of the function that this message is the result of.
	Name string
}

type chatPrompt struct {
	messages []Message
	tools    []byte
}

// ChatPrompt is a chat, turned into tokens by the model's own template. Tools that the constraint has are told to the
// model.
func ChatPrompt(messages ...Message) Prompt { return chatPrompt{messages: messages} }

// ChatPromptWithTools is the same, with tools that the template tells the model of: a JSON list in OpenAI's form; []
// keeps those of the constraint out.
func ChatPromptWithTools[T Text](tools T, messages ...Message) Prompt {
	// Never nil, which would say "not given".
	return chatPrompt{messages, append([]byte{}, tools...)}
}

func (p chatPrompt) writeTo(request *runnerpb.GenerateRequest) {
	chat := &runnerpb.ChatPrompt{Tools: p.tools}
	for _, message := range p.messages {
		chat.Messages = append(chat.Messages, &runnerpb.ChatMessage{
			Role: []byte(message.Role), Content: []byte(message.Content), ToolCalls: openAIForm(message.ToolCalls),
			ToolCallId: []byte(message.ToolCallID), Name: []byte(message.Name),
		})
	}
	request.Prompt = &runnerpb.GenerateRequest_Chat{Chat: chat}
}

// openAIForm writes calls as a JSON list; nothing for none.
func openAIForm(calls []ToolCall) []byte {
	if len(calls) == 0 {
		return nil
	}
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	list := make([]call, len(calls))
	for i, each := range calls {
		list[i] = call{each.ID, "function", function{each.Name, each.Arguments}}
	}
	// Strings always have a JSON text.
	text, _ := json.Marshal(list)
	return text
}
