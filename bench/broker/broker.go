package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jetpull/jetpull/broker"
)

const stopTimeout = 20 * time.Second

// runChild is the broker process. It tells its address on standard output.
func runChild(ctx context.Context, dir, sync string) error {
	if sync == bareSetting {
		return runBare(ctx, dir)
	}
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = dir
	cfg.NATS.Sync = sync
	if path := os.Getenv(childEnv + "_PROFILE"); path != "" {
		stopProfile, err := profile(path)
		if err != nil {
			return err
		}
		defer stopProfile()
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	n, err := broker.Start(ctx, cfg, log)
	if err != nil {
		return err
	}
	fmt.Println(n.URL())
	err = n.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, n.Stop(stopping))
}

// profile writes a CPU profile of the broker until it is stopped.
func profile(path string) (stop func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "benchbroker: profile:", err)
		}
	}, nil
}

// process is a broker process under load.
type process struct {
	cmd  *exec.Cmd // nil if somebody else started it
	dir  string
	sync string
	url  string
	id   string        // of its producer and its channel
	up   time.Duration // from start to the first answer
}

// startBroker starts a broker with an empty store, or takes the one that runs if
// target is an address, and registers a producer and a channel.
func startBroker(ctx context.Context, target string) (*process, error) {
	p := &process{url: target}
	if !strings.HasPrefix(target, "http://") {
		var err error
		if p, err = startProcess(ctx, target); err != nil {
			return nil, err
		}
	}
	p.id = "bench" + strconv.FormatInt(time.Now().UnixNano(), 36)
	for _, path := range []string{"/producer/" + p.id, p.channel()} {
		if err := p.put(ctx, path, url.Values{}); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func startProcess(ctx context.Context, sync string) (*process, error) {
	dir, err := os.MkdirTemp("", "benchbroker")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, sync: sync}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

func (p *process) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	begin := time.Now()
	p.cmd = exec.CommandContext(ctx, self)
	p.cmd.Env = append(os.Environ(), childEnv+"="+p.dir, childEnv+"_SYNC="+p.sync, childEnv+"_PROFILE="+profilePath)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("the broker did not start: %w", err), p.cmd.Wait())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	p.url = strings.TrimSpace(line)
	p.up = time.Since(begin)
	return nil
}

// stop ends the process in good order.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// kill ends the process as a crash would.
func (p *process) kill() error {
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	var ended *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &ended) {
		return fmt.Errorf("the broker was killed, and ended with %w", err)
	}
	return nil
}

// close stops the broker and removes its store, if it is ours.
func (p *process) close() {
	if p.cmd == nil {
		return
	}
	if err := p.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "benchbroker: stop:", err)
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		fmt.Fprintln(os.Stderr, "benchbroker: remove the store:", err)
	}
}

// memory is the resident set of the broker, server included, in MB.
func (p *process) memory() (float64, error) {
	path := "/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status"
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", path)
}
