package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// bareSetting makes the child a handler that appends each body to a file, syncs it and answers, in place of a broker: no
// answer to one connection that means "on disk" comes sooner. A request to unsynced it answers without the sync, as the
// broker does one that takes a job.
const (
	bareSetting = "bare"
	unsynced    = "/unsynced"
)

func runBare(ctx context.Context, dir string) error {
	file, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, file.Close())
	}
	var mu sync.Mutex
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			mu.Lock()
			if r.URL.Path == unsynced {
				_, err = file.Write(body)
			} else {
				err = appendSynced(file, body)
			}
			mu.Unlock()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Println("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}

func appendSynced(file *os.File, data []byte) error {
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Sync()
}

// ground is what the machine could do just before a run, so that a figure of a slow day explains itself.
type ground struct {
	load     float64 // processes that wanted a processor in the last minute
	syncs    float64 // of a file, one after the other, a second
	bare     float64 // requests of one connection that the bare handler answers a second
	unsynced float64 // those without a sync
}

// jobs is how many jobs a second the bare handler does that take so many requests each, of which it syncs the last.
func (g ground) jobs(requests int) float64 {
	return 1 / (1/g.bare + float64(requests-1)/g.unsynced)
}

// groundTime is how long each rate is measured.
const groundTime = 500 * time.Millisecond

func measureGround(ctx context.Context) (g ground, err error) {
	if g.load, err = load(); err != nil {
		return g, err
	}
	p, err := startProcess(ctx, bareSetting)
	if err != nil {
		return g, err
	}
	defer p.close()
	file, err := os.Create(filepath.Join(p.dir, "syncs"))
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if g.syncs, err = rateOf(func() error { return appendSynced(file, payload) }); err != nil {
		return g, err
	}
	c, err := p.dial(ctx)
	if err != nil {
		return g, err
	}
	defer c.close()
	post := func(path string) func() error {
		return func() error {
			_, err := c.expect(http.StatusOK, "POST", path, nil, payload)
			return err
		}
	}
	if g.bare, err = rateOf(post("/")); err != nil {
		return g, err
	}
	g.unsynced, err = rateOf(post(unsynced))
	return g, err
}

// rateOf calls f again and again for groundTime.
func rateOf(f func() error) (perSecond float64, err error) {
	begin, n := time.Now(), 0
	for time.Since(begin) < groundTime {
		if err := f(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
