package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

// TestHandler needs no server: jetpulltest creates the messages and reports how they were settled.
func TestHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want jetpulltest.Outcome
		left int
	}{
		"shipped":   {`{"id":1,"quantity":2}`, jetpulltest.Outcome{Verb: jetpulltest.Ack}, 3},
		"too many":  {`{"id":1,"quantity":6}`, jetpulltest.Outcome{Verb: jetpulltest.Nak, Delay: time.Hour, Err: errTooFew}, 5},
		"none":      {`{"id":1,"quantity":0}`, jetpulltest.Outcome{Verb: jetpulltest.Term, Reason: "order 1 is for nothing"}, 5},
		"not JSON":  {`two chairs`, jetpulltest.Outcome{Verb: jetpulltest.Term, Err: jetpull.ErrPayload}, 5},
		"no number": {`{"id":1,"quantity":"two"}`, jetpulltest.Outcome{Verb: jetpulltest.Term, Err: jetpull.ErrPayload}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := &warehouse{stock: 5}
			got := jetpulltest.Handle(t.Context(), w.handler(), jetpulltest.NewMsg("orders.new", []byte(tt.body)))
			if got.Verb != tt.want.Verb || got.Delay != tt.want.Delay {
				t.Errorf("%s after %v, want %s after %v", got.Verb, got.Delay, tt.want.Verb, tt.want.Delay)
			}
			if tt.want.Reason != "" && got.Reason != tt.want.Reason {
				t.Errorf("reason %q, want %q", got.Reason, tt.want.Reason)
			}
			if tt.want.Err != nil && !errors.Is(got.Err, tt.want.Err) {
				t.Errorf("error %v, want %v", got.Err, tt.want.Err)
			}
			if w.stock != tt.left {
				t.Errorf("%d are left, want %d", w.stock, tt.left)
			}
		})
	}
}

// TestService runs the handler as the service does, on a server that the test starts. The first attempt fails, and the message is retried.
func TestService(t *testing.T) {
	env := embedtest.Start(t, "orders.>")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := env.JS.Publish(ctx, "orders.new", []byte(`{"id":1,"quantity":2}`)); err != nil {
		t.Fatal(err)
	}
	sub, err := jetpull.Subscribe(ctx, env.JS, env.Stream, env.Consumer)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close(context.Background())
	w := &warehouse{stock: 2}
	rec := jetpulltest.NewRecorder(func(ctx context.Context, m *jetpull.Msg) error {
		if m.Delivered() == 1 {
			return jetpull.Retry(0, errors.New("the warehouse is closed"))
		}
		return w.handler()(ctx, m)
	})
	service, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- sub.Consume(service, rec.Handle) }()
	calls, err := rec.Wait(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if calls[0].Err == nil || calls[1].Err != nil {
		t.Errorf("attempts ended with %v and %v, want an error and none", calls[0].Err, calls[1].Err)
	}
	if w.stock != 0 {
		t.Errorf("%d are left, want none", w.stock)
	}
	// The server counts an acknowledgement a moment after it received it.
	for {
		info, err := sub.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.NumAckPending == 0 {
			break
		}
	}
}

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != "4 of 10 are left\n" {
		t.Errorf("output %q", out.String())
	}
}
