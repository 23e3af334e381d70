package main

import (
	"regexp"
	"testing"

	"github.com/constraintd/constraintd/clients/go/internal/live"
)

func TestTheExampleWritesWhatItsConstraintSays(t *testing.T) {
	daemon := live.StartDaemon(t, "memory")
	text, err := generate(t.Context(), daemon.Address)
	if err != nil || !regexp.MustCompile(`^(my|your) [a-z]{3}$`).MatchString(text) {
		t.Errorf("wrote %q, %v", text, err)
	}
}
