package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/constraintd/constraintd/clients/go"
)

// held is what stands between two lines, each under the name that the case gave it.
type held struct {
	daemons     map[string]*constraintd.Daemon
	runners     map[string]*constraintd.Runner
	streams     map[string]*constraintd.DecodeStream
	sessions    map[string]*constraintd.Session
	generations map[string]*generation
}

type generation struct {
	*constraintd.Generation
	next func() (constraintd.Event, error, bool)
	stop func()
	done context.CancelFunc
}

func newHeld() *held {
	return &held{
		map[string]*constraintd.Daemon{}, map[string]*constraintd.Runner{}, map[string]*constraintd.DecodeStream{},
		map[string]*constraintd.Session{}, map[string]*generation{},
	}
}

// reset ends and forgets everything.
func (h *held) reset() {
	for _, each := range h.generations {
		each.Close()
		each.stop()
		each.done()
	}
	for _, each := range h.streams {
		each.Close()
	}
	for _, each := range h.daemons {
		each.Close()
	}
	for _, each := range h.runners {
		each.Close()
	}
	*h = *newHeld()
}

func (h *held) daemon(asked *request) (*constraintd.Daemon, error) {
	return named(h.daemons, orMain(asked.Client))
}

func (h *held) runner(asked *request) (*constraintd.Runner, error) {
	return named(h.runners, orMain(asked.Runner))
}

func (h *held) keep(name string, started *constraintd.Generation, done context.CancelFunc) {
	next, stop := iter.Pull2(started.Events())
	h.generations[name] = &generation{started, next, stop, done}
}

func orMain(name string) string {
	if name == "" {
		return "main"
	}
	return name
}

// adapterError is a mistake of the case, or of this adapter: nothing that the client said.
type adapterError struct{ message string }

func (e adapterError) Error() string { return e.message }

func named[T any](all map[string]T, name string) (T, error) {
	found, ok := all[name]
	if !ok {
		return found, adapterError{fmt.Sprintf("nothing is held under the name %q", name)}
	}
	return found, nil
}
