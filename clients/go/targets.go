package constraintd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// targets are the addresses of one service, one of them the present one. Any number of goroutines may use it. What was
// opened for an address stays open until close: calls that run there end by themselves.
type targets struct {
	addresses []string
	options   []grpc.DialOption

	mu      sync.Mutex
	present int
	open    map[string]*grpc.ClientConn
	closed  bool
}

// connect reads the options and makes ready the targets; nothing is sent.
func connect(names []string, options []Option) (*settings, *targets, error) {
	settings, err := settingsOf(options)
	if err != nil {
		return nil, nil, err
	}
	all, err := newTargets(names, settings)
	return settings, all, err
}

func newTargets(addresses []string, settings *settings) (*targets, error) {
	if len(addresses) == 0 {
		return nil, errors.New("constraintd: no target; at least one is needed")
	}
	for _, address := range addresses {
		if err := checkTarget(address); err != nil {
			return nil, err
		}
		if err := settings.mayCarryToken(address); err != nil {
			return nil, err
		}
	}
	return &targets{
		addresses: append([]string(nil), addresses...),
		options:   settings.dialOptions(),
		open:      map[string]*grpc.ClientConn{},
	}, nil
}

// connection gives the present address and what is open to it.
func (t *targets) connection() (string, *grpc.ClientConn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	address := t.addresses[t.present]
	if t.closed {
		return address, nil, ErrClosed
	}
	connection, ok := t.open[address]
	if !ok {
		var err error
		// Opens lazily: nothing is sent before the first call.
		if connection, err = grpc.NewClient(address, t.options...); err != nil {
			return address, nil, fmt.Errorf("constraintd: target %q: %w", address, err)
		}
		t.open[address] = connection
	}
	return address, connection, nil
}

// leave goes on to the next address, round again after the last, unless somebody has left this one already.
func (t *targets) leave(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.addresses[t.present] == address {
		t.present = (t.present + 1) % len(t.addresses)
	}
}

func (t *targets) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var failures []error
	for _, connection := range t.open {
		failures = append(failures, connection.Close())
	}
	clear(t.open)
	return errors.Join(failures...)
}

// checkTarget refuses what is neither "unix:/path" nor "host:port": gRPC would take it for a name to look up, and tell
// of it at the first call only.
func checkTarget(target string) error {
	if path, isSocket := strings.CutPrefix(target, "unix:"); isSocket {
		if path == "" {
			return fmt.Errorf("constraintd: target %q has no path; expected unix:/path", target)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil || host == "" || port == "" || strings.Contains(host, "/") {
		return fmt.Errorf("constraintd: target %q is neither unix:/path nor host:port", target)
	}
	return nil
}

// isLocal tells whether what is sent there never leaves the machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// leaveIfLost goes on to the next address where this one is gone. A call that its own caller cancelled tells nothing of
// that.
func leaveIfLost(targets *targets, address string, err error, ctx context.Context) {
	if refused, ok := errors.AsType[*Error](err); ok && refused.lostItsServer() && ctx.Err() == nil {
		targets.leave(address)
	}
}
