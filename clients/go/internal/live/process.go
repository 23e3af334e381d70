// Package live starts real daemons and runners for tests: those of the folder that the environment variable
// CONSTRAINTD_BIN names, by default the repository's own.
package live

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const startTimeout = 60 * time.Second

// Process is a daemon or a runner at one Unix socket, which may be ended and started again.
type Process struct {
	// Address is what clients connect to, whether it runs or not.
	Address string

	t       testing.TB
	shared  bool
	command []string
	logPath string
	mu      sync.Mutex
	running *exec.Cmd
}

// StartDaemon starts `constraintd serve` at a Unix socket, on a store such as "memory" or "sqlite:PATH".
func StartDaemon(t testing.TB, store string, arguments ...string) *Process {
	t.Helper()
	return StartDaemonAt(t, "unix:"+filepath.Join(shortFolder(t), "daemon.sock"), store, arguments...)
}

// StartDaemonAt starts it at an address; with port 0 at any free one, which Address then has.
func StartDaemonAt(t testing.TB, address, store string, arguments ...string) *Process {
	t.Helper()
	folder := shortFolder(t)
	process := &Process{Address: address, t: t}
	process.logPath = filepath.Join(folder, "daemon.log")
	process.command = append([]string{
		program(t, "constraintd"), "serve", "--listen", process.Address, "--store", store, "--drain-seconds", "1",
	}, arguments...)
	process.Start()
	return process
}

var sharedDaemon struct {
	sync.Mutex
	process *Process
}

// SharedDaemon gives one daemon in memory to all tests of a process that neither end it nor count its sessions:
// starting one takes a second. EndShared ends it.
func SharedDaemon(t testing.TB) *Process {
	t.Helper()
	sharedDaemon.Lock()
	defer sharedDaemon.Unlock()
	if sharedDaemon.process == nil {
		folder, err := os.MkdirTemp("", "constraintd-")
		if err != nil {
			t.Fatal(err)
		}
		process := &Process{Address: "unix:" + filepath.Join(folder, "daemon.sock"), t: t, shared: true}
		process.logPath = filepath.Join(folder, "daemon.log")
		process.command = []string{program(t, "constraintd"), "serve", "--listen", process.Address, "--store", "memory"}
		process.Start()
		sharedDaemon.process = process
	}
	return sharedDaemon.process
}

// EndShared ends the shared daemon, if there is one; for TestMain.
func EndShared() {
	sharedDaemon.Lock()
	defer sharedDaemon.Unlock()
	if sharedDaemon.process != nil {
		sharedDaemon.process.Kill()
		os.RemoveAll(filepath.Dir(sharedDaemon.process.logPath))
	}
}

// StartRunner starts `constraintd-runner serve` with a model's folder.
func StartRunner(t testing.TB, model, daemon string, arguments ...string) *Process {
	t.Helper()
	folder := shortFolder(t)
	process := &Process{Address: "unix:" + filepath.Join(folder, "runner.sock"), t: t}
	process.logPath = filepath.Join(folder, "runner.log")
	process.command = append([]string{
		program(t, "constraintd-runner"), "serve", "--model", model, "--daemon", daemon, "--listen", process.Address,
		"--threads", "1",
	}, arguments...)
	process.Start()
	return process
}

// Start starts it, and waits until it listens. It is killed when the test ends.
func (p *Process) Start() {
	p.t.Helper()
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(p.command[0], p.command[1:]...)
	command.Stderr = log
	output, err := command.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		p.t.Fatalf("starting %s: %v; set CONSTRAINTD_BIN to the folder of constraintd and constraintd-runner", p.command[0], err)
	}
	p.mu.Lock()
	p.running = command
	p.mu.Unlock()
	if !p.shared {
		p.t.Cleanup(p.Kill)
	}
	timer := time.AfterFunc(startTimeout, func() { command.Process.Kill() })
	defer timer.Stop()
	line, _ := bufio.NewReader(output).ReadString('\n')
	address, listens := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening on ")
	if !listens {
		p.t.Fatalf("%s said %q and not that it listens; its log:\n%s", p.command[0], line, p.Log())
	}
	p.Address = address
}

// Kill sends SIGKILL, if it still runs: nothing is said or written any more.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop sends SIGTERM and waits until it has gone.
func (p *Process) Stop() {
	p.t.Helper()
	if command := p.end(syscall.SIGTERM); command != nil && command.ProcessState.ExitCode() != 0 {
		p.t.Errorf("%s ended with %v; its log:\n%s", p.command[0], command.ProcessState, p.Log())
	}
}

// Freeze keeps it from doing anything until Thaw.
func (p *Process) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (p *Process) Thaw() { p.signal(syscall.SIGCONT) }

// Log is what it has said so far.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *Process) signal(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		p.running.Process.Signal(signal)
	}
}

func (p *Process) end(signal syscall.Signal) *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	command := p.running
	if command == nil {
		return nil
	}
	p.running = nil
	command.Process.Signal(signal)
	command.Wait() // a signal's exit is an error, and no concern
	return command
}

// NewToken adds a token to a daemon's file of tokens, and gives it.
func NewToken(t testing.TB, file string) string {
	t.Helper()
	command := exec.Command(program(t, "constraintd"), "token", "tester", "--append", file)
	token, err := command.Output()
	if err != nil {
		t.Fatalf("making a token: %v", err)
	}
	return strings.TrimSpace(string(token))
}

// program is a file of CONSTRAINTD_BIN.
func program(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("CONSTRAINTD_BIN")
	if folder == "" {
		folder = filepath.Join(repository(), ".venv", "bin")
	}
	path, err := filepath.Abs(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// repository is the root of the repository that this file stands in.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
}

// shortFolder is a folder for a socket, whose path may have 107 bytes: t.TempDir's has the test's name in it.
func shortFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "constraintd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// TinyModel writes the folder of a model that takes milliseconds to load: random weights, a real tokenizer, and logits
// that spread like a real model's.
func TinyModel(t testing.TB) string {
	t.Helper()
	folder := shortFolder(t)
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "testdata", "write_tiny_model.py")
	command := exec.Command(program(t, "python"), script, folder)
	command.Env = append(os.Environ(), "PYTHONPATH="+repository())
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("writing the model: %v\n%s", err, strings.TrimSpace(string(said)))
	}
	return folder
}
