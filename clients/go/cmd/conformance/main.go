// Command conformance lets the cases of clients/conformance drive this client: a request a line on stdin, an answer a
// line on stdout. ADAPTER.md there says which there are.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// operation answers a request: with what is to be spelled, or with the client's error.
type operation func(context.Context, *held, *request) (any, error)

func operations() map[string]operation {
	return map[string]operation{
		"hello": hello, "reset": reset,
		"connect": connect, "register": register, "token_table": tokenTable, "compile": compile,
		"open": open, "handle": handle, "step": step, "update": update, "rollback": rollback, "fork": fork,
		"resume": resume, "export": export, "import": importSession, "close": closeSession, "get": get, "list": list,
		"stream": stream, "send": send, "take": take, "forget": forget, "reconnect": reconnect,
		"close_stream": closeStream,
		"mask":         mask, "pick": pick,
		"connect_runner": connectRunner, "generate": generate, "resume_generation": resumeGeneration, "events": events,
		"cancel": cancel, "close_generation": closeGeneration, "model_info": modelInfo,
	}
}

// serve answers until the input ends.
func serve(input io.Reader, output io.Writer) error {
	all, place := operations(), newHeld()
	defer place.reset()
	lines := bufio.NewReader(input)
	encoder := json.NewEncoder(output)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := encoder.Encode(answer(all, place, line)); err != nil {
			return err
		}
	}
}

func answer(all map[string]operation, place *held, line []byte) map[string]any {
	asked := &request{}
	if err := json.Unmarshal(line, asked); err != nil {
		return map[string]any{"error": map[string]any{"kind": "adapter", "message": err.Error()}}
	}
	run, known := all[asked.Op]
	if !known {
		message := fmt.Sprintf("no operation %q", asked.Op)
		return map[string]any{"error": map[string]any{"kind": "adapter", "message": message}}
	}
	said, err := run(context.Background(), place, asked)
	if err != nil {
		return map[string]any{"error": refusalOf(err, asked, place)}
	}
	if said == nil {
		said = map[string]any{}
	}
	return map[string]any{"ok": said}
}

func hello(context.Context, *held, *request) (any, error) {
	return map[string]any{
		"language": "go",
		"stages": []string{
			"greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l",
			"mirostat_v1", "mirostat_v2", "logit_bias",
		},
		"features": []string{"retryable"},
	}, nil
}

func reset(_ context.Context, place *held, _ *request) (any, error) {
	place.reset()
	return nil, nil
}
