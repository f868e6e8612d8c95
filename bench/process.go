package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/jetpull/jetpull/bench/measure"
)

// shutdownGrace is how long a process may take to end once its stdin is closed.
const shutdownGrace = 20 * time.Second

// child is a bench program that this one started. It writes one line of JSON for each answer, and ends when its stdin
// does, so that it cannot outlive its parent.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

func startChild(program string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(program, args...)}
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdin, c.out = stdin, json.NewDecoder(stdout)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s %v: %w", program, args, err)
	}
	return c, nil
}

// startSelf starts this program again.
func startSelf(args ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it again: %w", err)
	}
	return startChild(program, args...)
}

// receive reads the next answer into v. The process is killed if ctx ends first.
func (c *child) receive(ctx context.Context, v any) error {
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	if err := c.out.Decode(v); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("no answer from %v: %w", c.cmd.Args, err))
	}
	return nil
}

// Close ends the process and waits for it.
func (c *child) Close() error {
	err := c.stdin.Close()
	kill := time.AfterFunc(shutdownGrace, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, c.cmd.Wait())
}

// serverProcess is the server under test in a process of its own.
type serverProcess struct {
	*child
	endpoints
	links measure.Links
	dir   string
}

// startServer starts the server with a store in a new folder under parent (the system's temporary folder if empty).
// It must lie on a disk for the figures to mean much.
func startServer(ctx context.Context, parent string, delay time.Duration) (*serverProcess, error) {
	dir, err := os.MkdirTemp(parent, "jetpull-bench-")
	if err != nil {
		return nil, fmt.Errorf("folder for the server's store: %w", err)
	}
	c, err := startSelf(serveCommand, "-dir", dir, "-delay", delay.String())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &serverProcess{child: c, dir: dir}
	if err := p.receive(ctx, &p.endpoints); err != nil {
		return nil, errors.Join(fmt.Errorf("start the server process: %w", err), p.Close())
	}
	if p.links, err = p.connect("bench-control"); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close ends the server, waits for it and removes its store.
func (p *serverProcess) Close() error {
	p.links.Close()
	return errors.Join(p.child.Close(), os.RemoveAll(p.dir))
}
