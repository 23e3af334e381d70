// Command toy is a runner whose model is made up: its logits are a hash of the tokens before. It drives all sessions of
// a file over one Decode stream, through restarts of the daemon, and prints what each came to, one JSON line a session.
// The same file gives the same tokens from every client's toy.
//
//	toy --daemon unix:/tmp/constraintd.sock --vocabulary-tokens byte --sessions sessions.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "toy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, output io.Writer) error {
	flags := flag.NewFlagSet("toy", flag.ContinueOnError)
	daemon := flags.String("daemon", "", "the daemon: unix:/path or host:port, or several of one store, separated by commas")
	vocabulary := flags.String("vocabulary-tokens", "byte", "the vocabulary; `byte` is the only one")
	path := flags.String("sessions", "", "`FILE` of the sessions, JSON")
	patience := flags.Float64("patience", 60, "`SECONDS` that the daemon may be away at a time")
	flags.Bool("one-stream", true, "all sessions over one Decode stream, which is the only way")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	switch {
	case *daemon == "" || *path == "" || flags.NArg() > 0:
		return fmt.Errorf("expected --daemon and --sessions, and nothing besides; got %q", arguments)
	case *vocabulary != "byte":
		return fmt.Errorf("--vocabulary-tokens %q; expected byte", *vocabulary)
	case !(*patience > 0 && *patience < 1e6):
		return fmt.Errorf("--patience %v; expected seconds above 0", *patience)
	}
	plans, err := readPlans(*path)
	if err != nil {
		return err
	}
	results, err := drive(ctx, strings.Split(*daemon, ","), plans, time.Duration(*patience*float64(time.Second)))
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(output)
	for _, result := range results {
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
	return nil
}
