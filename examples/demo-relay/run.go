package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

// sources are the senders of events. Each has its own callback.
var sources = []string{"shop", "stock", "returns"}

const (
	// batch is the maximum number of events in a request.
	batch = 100
	// lookEvery is the interval at which the state of an operation is read.
	lookEvery  = 100 * time.Millisecond
	adminToken = "demo"
)

// demo is one run.
type demo struct {
	relay     *client.Client
	receivers []*receiver
	begin     time.Time
	events    int

	bar *progress.Bar

	mu       sync.Mutex
	ends     map[string][]string // the statuses that callbacks reported for each event, by source and ID
	failed   int
	done     int
	changed  chan struct{} // closed at the next callback
	redriven int
	repaired time.Duration // when the receiver that refused everything was repaired
	lasted   time.Duration
}

// run runs the demo. It writes the results to out, and the progress to screen.
func run(ctx context.Context, s settings, out, screen io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "demo-relay")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := relay.DefaultConfig()
	cfg.HTTP.Listener, cfg.NATS.StoreDir, cfg.Admin.Token = "127.0.0.1:0", dir, adminToken
	node, err := relay.Start(ctx, cfg, slog.New(slog.NewTextHandler(screen, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop(context.WithoutCancel(ctx))) }()
	d := &demo{
		relay: client.New(node.URL(), adminToken, nil), receivers: receivers(), events: s.events,
		ends: map[string][]string{}, changed: make(chan struct{}),
	}
	stop, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := d.flow(ctx, screen); err != nil {
		return err
	}
	return d.report(out, s.chart)
}

// connect starts the receivers and callbacks, and registers them with the relay.
func (d *demo) connect(ctx context.Context) (stop func(), err error) {
	var servers []*httptest.Server
	stop = func() {
		for _, server := range servers {
			server.Close()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	secret := webhook.NewSecret()
	verifier, err := client.NewVerifier(secret)
	if err != nil {
		return nil, err
	}
	for _, r := range d.receivers {
		r.events, r.codes, r.ready = map[string]int{}, map[int]int{}, map[string]time.Time{}
		server := httptest.NewServer(r.handler(r, verifier))
		servers = append(servers, server)
		body := map[string]any{
			"post_endpoint": server.URL + "/events", "rate_limit": r.limit, "window_size": r.window.Seconds(), "secrets": []string{secret},
		}
		if r.name == "builds" {
			body["status_endpoint"] = server.URL + "/events" + client.StatusPath
		}
		if err := d.relay.Call(ctx, http.MethodPut, "/v1/receivers/"+r.name, body, nil); err != nil {
			return nil, err
		}
	}
	for _, source := range sources {
		server := httptest.NewServer(&client.Callback{Verifier: verifier, Handle: d.called})
		servers = append(servers, server)
		body := map[string]any{"callback_endpoint": server.URL, "token": source + "-token", "secrets": []string{secret}, "sources": []string{source}}
		if err := d.relay.Call(ctx, http.MethodPut, "/v1/senders/"+source, body, nil); err != nil {
			return nil, err
		}
	}
	return stop, nil
}

// called handles a callback.
func (d *demo) called(_ context.Context, r client.Result) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := r.Source + "/" + r.ID
	d.ends[id] = append(d.ends[id], r.Status)
	if r.Status == client.StatusDone {
		d.done++
		d.bar.Add(1)
	} else {
		d.failed++
	}
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// until waits until a condition on the counts of callbacks is met.
func (d *demo) until(ctx context.Context, met func() bool) error {
	for {
		d.mu.Lock()
		ok, changed := met(), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// flow sends all events. When all messages that the broken receiver refused have failed, it repairs the receiver. Then it waits for the end.
func (d *demo) flow(ctx context.Context, screen io.Writer) error {
	plan := d.plan()
	refused := 0
	for _, event := range plan {
		if d.receiver(event.Receiver).broken.Load() {
			refused++
		}
	}
	d.begin = time.Now()
	d.bar = progress.New(screen, "events", int64(d.events))
	defer d.bar.Clear()
	// The first error ends all of them.
	work, ctx := errgroup.WithContext(ctx)
	for _, source := range sources {
		work.Go(func() error { return d.send(ctx, source, plan) })
	}
	work.Go(func() error {
		if err := d.until(ctx, func() bool { return d.failed == refused }); err != nil {
			return err
		}
		return d.redrive(ctx)
	})
	work.Go(func() error { return d.until(ctx, func() bool { return d.done == d.events }) })
	if err := work.Wait(); err != nil {
		return err
	}
	d.lasted = time.Since(d.begin)
	d.bar.Done()
	return nil
}

func (d *demo) receiver(name string) *receiver {
	for _, r := range d.receivers {
		if r.name == name {
			return r
		}
	}
	return nil
}

// plan returns the events, with their sources and receivers. The receivers take turns within each hundred events.
func (d *demo) plan() []client.Message {
	var turns []*receiver
	for i := range 100 {
		for _, r := range d.receivers {
			// Bresenham's line: r has percent turns in a hundred, evenly spread.
			if (i+1)*r.percent/100 > i*r.percent/100 {
				turns = append(turns, r)
			}
		}
	}
	plan := make([]client.Message, d.events)
	for i := range plan {
		plan[i] = client.Message{
			Source: sources[i%len(sources)], ID: fmt.Sprintf("event-%d", i), Receiver: turns[i%len(turns)].name, Payload: map[string]int{"number": i},
		}
	}
	return plan
}

// send sends the events of one source, in batches.
func (d *demo) send(ctx context.Context, source string, plan []client.Message) error {
	var lines bytes.Buffer
	count := 0
	flush := func() error {
		if count == 0 {
			return nil
		}
		var answer []byte
		if err := d.relay.Call(ctx, http.MethodPost, "/v1/messages:batch", lines.Bytes(), &answer); err != nil {
			return err
		}
		if stored := bytes.Count(answer, []byte(`"status":"`)); stored != count {
			return fmt.Errorf("of %d events of %s %d were stored: %s", count, source, stored, answer)
		}
		lines.Reset()
		count = 0
		return nil
	}
	for _, event := range plan {
		if event.Source != source {
			continue
		}
		if err := json.NewEncoder(&lines).Encode(event); err != nil {
			return err
		}
		if count++; count == batch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// redrive repairs the receiver that refused everything, and redrives its failed messages.
func (d *demo) redrive(ctx context.Context) error {
	for _, r := range d.receivers {
		r.broken.Store(false)
	}
	d.repaired = time.Since(d.begin)
	var o struct {
		ID, State string
		Done      int
	}
	if err := d.relay.Call(ctx, http.MethodPost, "/v1/failed:redrive", map[string]any{"filter": map[string]string{"receiver": "billing"}},
		&o); err != nil {
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for o.State == "running" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := d.relay.Call(ctx, http.MethodGet, "/v1/operations/"+o.ID, nil, &o); err != nil {
			return err
		}
	}
	d.redriven = o.Done
	return nil
}
