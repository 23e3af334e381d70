package constraintd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README shows parts of the examples, which tests run.
func TestTheReadmeShowsWhatTheExamplesDo(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var programs string
	files, err := filepath.Glob("examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		programs += undented(string(text))
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(programs, undented(block)) {
			t.Errorf("no example has this:\n%s", block)
		}
	}
	if len(blocks) < 3 {
		t.Errorf("only %d blocks of Go", len(blocks))
	}
}

// undented has no white space at the lines' beginnings.
func undented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t ")
	}
	return strings.Join(lines, "\n")
}
