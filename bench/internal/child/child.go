// Package child runs the system that a benchmark measures in a separate process of the benchmark's own binary. So the
// processor time, memory and allocations of the two are measured separately, and the system can be killed.
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
	// grace is how long a process may take to end after its stdin is closed.
	grace = 60 * time.Second
)

// Serve runs a system until ctx ends. It calls ready with the system's URLs when the system is ready.
type Serve func(ctx context.Context, args []string, ready func(urls ...string)) error

// Main returns at once, unless [Start] started this process. Then it calls serve and exits. TestMain must call it first.
func Main(serve Serve) {
	args := os.Getenv(argsEnv)
	if args == "" {
		return
	}
	// An interrupt at the terminal also reaches this process. The parent handles it, and closes stdin when it is done.
	signal.Ignore(os.Interrupt)
	if err := run(serve, strings.Split(args, separator)); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark, system under measurement:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run calls serve until stdin ends. The parent has the other end, so the system ends even if the parent is killed.
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

// Start starts a system. If JETPULL_BENCH_PROFILE names a file, the CPU profile of the last system is written to it.
func Start(args ...string) (*Process, error) {
	p := &Process{args: args}
	return p, p.Start()
}

// Start restarts the system after Stop or Kill, with the same arguments.
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

// Stop stops the system gracefully and waits for its end.
func (p *Process) Stop() error {
	err := p.stdin.Close()
	kill := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, p.cmd.Wait())
}

// Kill kills the system and waits for its end.
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

// CPU returns the processor time of the system, in user and kernel mode. Unlike a rate, it depends little on other running
// programs.
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
