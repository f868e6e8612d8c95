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
	"path/filepath"
	"sync"
	"time"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/progress"
)

const (
	// lookEvery is the interval at which the tables are read.
	lookEvery = 50 * time.Millisecond
	// endWithin limits how long a watcher takes to end after its signal.
	endWithin = 20 * time.Second
)

// demo is one run.
type demo struct {
	settings
	dir   string
	store *feed.Store
	begin time.Time
	bar   *progress.Bar
	lines io.Writer // above the bar

	looks  []look
	killed time.Duration

	mu    sync.Mutex
	calls []call
}

// look is the state of the tables at one moment.
type look struct {
	at       time.Duration
	complete []int // résumés, by city
	gate     []int
	status   []feed.Status
}

// process is a watcher's process.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.Closer
	read chan struct{} // closed at the end of its output
}

// run runs the demo. It writes the results to out, and the progress to screen.
func run(ctx context.Context, s settings, out, screen io.Writer) (err error) {
	d := &demo{settings: s, bar: progress.New(screen, "résumés", int64(s.resumes))}
	d.lines = d.bar.Over(screen)
	if d.dir, err = os.MkdirTemp("", "demo-feed"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if d.db == "" {
		d.db = filepath.Join(d.dir, "feed.db")
	}
	if d.store, err = feed.Open(ctx, "sqlite:"+d.db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.store.Close()) }()
	if err := d.insert(ctx); err != nil {
		return err
	}
	d.begin = time.Now()
	a, err := d.start("A")
	if err != nil {
		return err
	}
	defer a.kill()
	b, err := d.start("B")
	if err != nil {
		return err
	}
	defer b.kill()
	if err := d.follow(ctx, a); err != nil {
		return err
	}
	if err := b.end(); err != nil {
		return err
	}
	return d.report(ctx, out)
}

// insert creates the partitions. Each has its résumés, and an item for the ranking at the second gate.
func (d *demo) insert(ctx context.Context) error {
	for i, city := range cities {
		items := append(draw(i, d.of(i)), feed.Item{ID: "ranking", Gate: ranking})
		if _, err := d.store.CreatePartition(ctx, feed.Partition{ID: city, Sealed: true}, items...); err != nil {
			return err
		}
	}
	return nil
}

// of returns the number of résumés of a city.
func (d *demo) of(city int) int {
	n := d.resumes / len(cities)
	if city < d.resumes%len(cities) {
		n++
	}
	return n
}

// start runs this program as a watcher.
func (d *demo) start(name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.CommandContext(context.Background(), self), read: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), watcherDB+"="+d.db, watcherName+"="+name)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	lines, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.read)
		d.record(lines)
	}()
	return p, nil
}

// record appends the calls that a watcher reports. The last line of a killed watcher may be incomplete.
func (d *demo) record(lines io.Reader) {
	for s := bufio.NewScanner(lines); s.Scan(); {
		var c call
		if json.Unmarshal(s.Bytes(), &c) != nil {
			continue
		}
		d.mu.Lock()
		d.calls = append(d.calls, c)
		d.mu.Unlock()
	}
}

// kill sends SIGKILL if the process is still running, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.read // before Wait, which closes the pipe
	_ = p.cmd.Wait()
}

// end stops a watcher and waits for its end, at most for endWithin. Then it kills it.
func (p *process) end() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	late := time.AfterFunc(endWithin, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	<-p.read
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("watcher %s: %w", p.name, err)
	}
	return nil
}

// follow reads the tables until all partitions are complete. When two fifths of the résumés are classified, it kills a watcher.
func (d *demo) follow(ctx context.Context, victim *process) error {
	defer d.bar.Done()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for shown := 0; ; {
		l, err := d.look(ctx)
		if err != nil {
			return err
		}
		d.looks = append(d.looks, l)
		classified, done := 0, 0
		for i := range cities {
			classified += l.complete[i]
			if l.status[i] == feed.Complete {
				done++
			}
		}
		d.bar.Add(classified - shown)
		shown = classified
		if d.killed == 0 && 5*classified >= 2*d.resumes {
			victim.kill()
			d.killed = time.Since(d.begin)
			_, _ = fmt.Fprintf(d.lines, "watcher %s is killed (kill -9) after %d résumés\n", victim.name, classified)
		}
		if done == len(cities) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *demo) look(ctx context.Context) (look, error) {
	l := look{at: time.Since(d.begin)}
	for _, city := range cities {
		p, err := d.store.Partition(ctx, city)
		if err != nil {
			return look{}, err
		}
		counts, err := d.store.Counts(ctx, city)
		if err != nil {
			return look{}, err
		}
		l.complete = append(l.complete, counts[classifying].Complete)
		l.gate, l.status = append(l.gate, p.Gate), append(l.status, p.Status)
	}
	return l, nil
}
