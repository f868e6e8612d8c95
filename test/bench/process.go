package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// shutdownGrace is how long the server process may take to end once its stdin is closed.
const shutdownGrace = 20 * time.Second

// serverProcess is the server under test in a process of its own: this program, started again.
type serverProcess struct {
	endpoints
	cmd   *exec.Cmd
	stdin io.Closer
	dir   string
}

// startServer starts the server with a store in a new folder under parent (the system's temporary folder if empty).
// It must lie on a disk for the figures to mean much.
func startServer(ctx context.Context, parent string, delay time.Duration) (*serverProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it as the server: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "jetpull-bench-")
	if err != nil {
		return nil, fmt.Errorf("folder for the server's store: %w", err)
	}
	p := &serverProcess{dir: dir}
	p.cmd = exec.Command(program, serveCommand, "-dir", dir, "-delay", delay.String())
	p.cmd.Stderr = os.Stderr
	if err := p.launch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the server process: %w", err), p.Close())
	}
	return p, nil
}

// launch starts the process and reads its endpoints.
func (p *serverProcess) launch(ctx context.Context) error {
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = stdin.Close() })()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("it ended without naming its endpoints: %w", err)
	}
	return json.Unmarshal(line, &p.endpoints)
}

// Close ends the server, waits for it and removes its store.
func (p *serverProcess) Close() error {
	var errs []error
	if p.stdin != nil {
		errs = append(errs, p.stdin.Close())
	}
	if p.cmd.Process != nil {
		kill := time.AfterFunc(shutdownGrace, func() { _ = p.cmd.Process.Kill() })
		errs = append(errs, p.cmd.Wait())
		kill.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}
