package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/relay"
)

const stopTimeout = 60 * time.Second

// runChild is the relay process. It writes its address to standard output.
func runChild(ctx context.Context, dir string) (err error) {
	if path := os.Getenv(childEnv + "_PROFILE"); path != "" {
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return errors.Join(err, file.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			_ = file.Close()
		}()
	}
	if target := os.Getenv(childEnv + "_NAIVE"); target != "" {
		return runNaive(ctx, dir, target)
	}
	cfg := relay.DefaultConfig()
	cfg.HTTP.Listener, cfg.NATS.StoreDir = "127.0.0.1:0", dir
	n, err := relay.Start(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	fmt.Println(n.URL())
	err = n.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, n.Stop(stopping))
}

// process is a child under load.
type process struct {
	cmd     *exec.Cmd
	dir     string
	profile string
	url     string
	out     *bufio.Reader
}

// startChild starts a child with an empty store.
func startChild(ctx context.Context, s settings, env ...string) (*process, error) {
	dir, err := os.MkdirTemp("", "benchrelay")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, profile: s.profile}
	return p, p.start(ctx, env...)
}

// start starts the child on its store, and reads its first line.
func (p *process) start(ctx context.Context, env ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.CommandContext(ctx, self)
	p.cmd.Env = append(append(os.Environ(), childEnv+"="+p.dir, childEnv+"_PROFILE="+p.profile), env...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.out = bufio.NewReader(out)
	line, err := p.out.ReadString('\n')
	p.url = strings.TrimSpace(line)
	return err
}

// restart ends the child with a signal and starts it on the same store, and returns how long the start took.
func (p *process) restart(ctx context.Context, signal os.Signal) (time.Duration, error) {
	p.stop(signal)
	begin := time.Now()
	err := p.start(ctx)
	return time.Since(begin), err
}

func (p *process) stop(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
	_, _ = io.Copy(io.Discard, p.out)
	if err := p.cmd.Wait(); err != nil && signal != os.Kill {
		fmt.Fprintln(os.Stderr, "benchrelay: stop:", err)
	}
}

// close stops the child in good order and removes its store.
func (p *process) close() {
	p.stop(os.Interrupt)
	_ = os.RemoveAll(p.dir)
}

// memory is the resident set of the child in MB.
func (p *process) memory() (float64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// processor is how long the child has used a processor, in user and kernel mode. Unlike a rate it says much the same
// when other programs run beside it.
func (p *process) processor() (time.Duration, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15, in ticks of 10 ms; the second, in parentheses, may have spaces.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.cmd.Process.Pid, len(fields))
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	kernel, kernelErr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+kernel) * 10 * time.Millisecond, errors.Join(userErr, kernelErr)
}

// errUnavailable says that the relay took some or nothing of a request and asks for it again.
var errUnavailable = errors.New("the relay is not available")

// call makes a request that must succeed and reads the answer into value, if that is not nil.
func (p *process) call(ctx context.Context, method, path string, body []byte, value any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if bytes.Contains(data, []byte(`"code":"unavailable"`)) {
		return errUnavailable
	}
	if resp.StatusCode >= http.StatusMultipleChoices || bytes.Contains(data, []byte(`"error":{`)) {
		return fmt.Errorf("%s %s: %d %.300s", method, path, resp.StatusCode, data)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(data, value)
}
