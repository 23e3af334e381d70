package main

import (
	"testing"

	"github.com/constraintd/constraintd/clients/go/internal/live"
)

func TestTheExampleRuns(t *testing.T) {
	daemon := live.StartDaemon(t, "memory")
	runner := live.StartRunner(t, live.TinyModel(t), daemon.Address)
	if err := invent(t.Context(), []string{runner.Address}); err != nil {
		t.Error(err)
	}
}
