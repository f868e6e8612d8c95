// Package child runs the system that a benchmark measures as a separate process: the benchmark's binary starts itself
// again. So processor time, memory and allocations of the two are measured separately, and the system can be killed.
package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

const (
	argsEnv    = "JETPULL_BENCH_CHILD"
	profileEnv = "JETPULL_BENCH_PROFILE"
	separator  = "\x1f"
	// grace is how long a process may take to end once its stdin is closed.
	grace = 60 * time.Second
)

// Serve runs a system until ctx ends. It calls ready with the system's addresses once it is ready.
type Serve func(ctx context.Context, args []string, ready func(urls ...string)) error

// Main returns at once, unless this process was started by [Start]: then it serves and exits. TestMain calls it first.
func Main(serve Serve) {
	args := os.Getenv(argsEnv)
	if args == "" {
		return
	}
	// An interrupt at the terminal reaches this process too. The parent handles it, and closes stdin when it is done.
	signal.Ignore(os.Interrupt)
	if err := run(serve, strings.Split(args, separator)); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark, system under measurement:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves until stdin ends: the parent has the other end, so no system outlives a parent that was killed.
func run(serve Serve, args []string) (err error) {
	if path := os.Getenv(profileEnv); path != "" {
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return serve(ctx, args, func(urls ...string) { fmt.Println(strings.Join(urls, " ")) })
}

// Process is a system under measurement.
type Process struct {
	URLs []string
	Up   time.Duration // from the start of the process until it was ready

	args  []string
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// Start starts a system. A file named by JETPULL_BENCH_PROFILE gets the CPU profile of the last one.
func Start(args ...string) (*Process, error) {
	p := &Process{args: args}
	return p, p.Start()
}

// Start starts the system again after Stop or Kill, with the same arguments.
func (p *Process) Start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	begin := time.Now()
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), argsEnv+"="+strings.Join(p.args, separator))
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("the system %q did not start: %w", p.args, err), p.Stop())
	}
	p.URLs, p.Up = strings.Fields(line), time.Since(begin)
	return nil
}

// Stop ends the system in good order and waits for it.
func (p *Process) Stop() error {
	err := p.stdin.Close()
	kill := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, p.cmd.Wait())
}

// Kill ends the system as a crash does, and waits for it.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	var ended *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &ended) {
		return fmt.Errorf("the system %q was killed, and ended with %w", p.args, err)
	}
	return nil
}

// Memory returns the resident set of the system in bytes.
func (p *Process) Memory() (float64, error) {
	stat, err := p.stat()
	return float64(stat.ResidentMemory()), err
}

// CPU returns the processor time of the system, in user and kernel mode. Unlike a rate it depends little on other programs
// that run at the same time.
func (p *Process) CPU() (time.Duration, error) {
	stat, err := p.stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

func (p *Process) stat() (procfs.ProcStat, error) {
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return proc.Stat()
}
