package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// seedWait is how long one schedule may take in real time. It takes
	// milliseconds, on a busy machine seconds; one that goes on for ever without
	// time passing is found by this.
	seedWait = 2 * time.Minute
	// maxOutput bounds the output of a worker that is retained for a report.
	maxOutput = 64 << 10
)

// pool runs seeds in worker processes, as many at a time as there are CPUs.
type pool struct {
	exe  string
	next func() (seed uint64, ok bool) // called from several goroutines
	took func(verdict) (goOn bool)     // called by one goroutine at a time

	mu     sync.Mutex
	over   bool
	enough chan struct{} // closed when took has said so
}

// run returns when next or took says that it is enough.
func (p *pool) run() {
	p.enough = make(chan struct{})
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p.work() {
				continue
			}
		})
	}
	workers.Wait()
}

// work runs one worker process until there are no more seeds, and reports
// whether it ended before that.
func (p *pool) work() (again bool) {
	w, err := startWorker(p.exe)
	if err != nil {
		p.report(verdict{Wrongs: []string{err.Error()}})
		return false
	}
	defer w.stop()
	for {
		seed, ok := p.next()
		if !ok {
			return false
		}
		v, alive := w.run(seed, p.enough)
		if !p.report(v) {
			return false
		}
		if !alive {
			return true
		}
	}
}

// report passes a verdict on, and returns whether to go on.
func (p *pool) report(v verdict) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over && !p.took(v) {
		p.over = true
		close(p.enough)
	}
	return !p.over
}

// worker is a process that runs seeds.
type worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed when the process has closed its output
	output strings.Builder
}

func startWorker(exe string) (*worker, error) {
	w := &worker{cmd: exec.Command(exe, "-test.run=^TestWorker$", "-test.v", "-test.timeout=0", "-sim.worker", fmt.Sprintf("-sim.everything=%t", *everything)), lines: make(chan string)}
	// One thread runs all goroutines of a schedule, so that a seed does nearly
	// the same each time.
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, inside, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("sim: pipe for a worker: %w", err)
	}
	w.cmd.Stdout, w.cmd.Stderr = inside, inside
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("sim: input of a worker: %w", err)
	}
	err = w.cmd.Start()
	_ = inside.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("sim: start worker %s: %w", exe, err)
	}
	go w.read(out)
	return w, nil
}

func (w *worker) read(out io.ReadCloser) {
	defer close(w.lines)
	defer out.Close()
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if line != "" {
			w.lines <- line
		}
		if err != nil {
			return
		}
	}
}

// run runs one seed. A worker that died, hangs or was stopped is not used again.
func (w *worker) run(seed uint64, enough <-chan struct{}) (v verdict, alive bool) {
	if _, err := fmt.Fprintln(w.in, seed); err != nil {
		return verdict{Seed: seed, Wrongs: []string{"the worker is gone: " + err.Error()}, Report: w.rest()}, false
	}
	timeout := time.NewTimer(seedWait)
	defer timeout.Stop()
	for {
		select {
		case line, open := <-w.lines:
			if !open {
				return verdict{Seed: seed, Wrongs: []string{"it ended its process: " + w.reason()}, Report: w.output.String()}, false
			}
			if text, ok := strings.CutPrefix(line, verdictMark); ok {
				return w.verdict(seed, text)
			}
			w.keep(line)
		case <-enough:
			_ = w.cmd.Process.Kill()
			return verdict{Seed: seed}, false
		case <-timeout.C:
			// The process then says where its goroutines are.
			_ = w.cmd.Process.Signal(syscall.SIGQUIT)
			return verdict{Seed: seed, Wrongs: []string{fmt.Sprintf("it did not end within %v", seedWait)}, Report: w.rest()}, false
		}
	}
}

func (w *worker) verdict(seed uint64, text string) (verdict, bool) {
	var v verdict
	if err := json.Unmarshal([]byte(text), &v); err != nil || v.Seed != seed {
		return verdict{Seed: seed, Wrongs: []string{fmt.Sprintf("the worker answered %.200q: %v", text, err)}}, false
	}
	if len(v.Wrongs) > 0 {
		v.Report += w.output.String()
	}
	w.output.Reset()
	return v, true
}

// keep keeps a line of output for a report.
func (w *worker) keep(line string) {
	if w.output.Len() < maxOutput {
		w.output.WriteString(line)
	}
}

// rest is the output up to the end of the process.
func (w *worker) rest() string {
	for line := range w.lines {
		w.keep(line)
	}
	return w.output.String()
}

// reason is the line of the output that says why a process ended.
func (w *worker) reason() string {
	for line := range strings.SplitSeq(w.output.String(), "\n") {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
			return line
		}
	}
	return "no panic"
}

// stop ends the process and waits for it.
func (w *worker) stop() {
	_ = w.in.Close()
	w.rest()
	// Its verdicts say how it ended.
	_ = w.cmd.Wait()
}
