package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/test/servertest"
)

// A Consume with a name says which messages its handlers have, ends the context of one on request, and is a service of micro until it ends.
func TestNamed(t *testing.T) {
	ctx := t.Context()
	server := servertest.RunServer(t)
	nc := server.Connect(t)
	js := server.JetStream(t, nc)
	jobs := natstest.StreamWith(t, js, jetstream.StreamConfig{Name: stream, Subjects: []string{"jobs.>"}})
	_, err := jobs.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(ctx, server.JetStream(t, server.Connect(t)), stream, consumer)
	require.NoError(t, err)
	defer func() { _ = sub.Close(context.Background()) }()

	for name, consume := range map[string]func(ctx context.Context, cause chan<- error) error{
		"Consume": func(ctx context.Context, cause chan<- error) error {
			return sub.Consume(ctx, func(ctx context.Context, _ *jetpull.Msg) error {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return jetpull.Terminate("cancelled", nil)
			}, jetpull.Named("loaders"), jetpull.Concurrency(2))
		},
		"ConsumeBatch": func(ctx context.Context, cause chan<- error) error {
			return sub.ConsumeBatch(ctx, 2, time.Millisecond, func(ctx context.Context, _ []*jetpull.Msg) error {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return jetpull.Terminate("cancelled", nil)
			}, jetpull.Named("loaders"), jetpull.Concurrency(2), jetpull.DrainTimeout(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Eventually(t, func() bool { // the service before ends a moment after its call
				all, err := running.Ask[running.List](ctx, nc, running.ListSubject(stream, consumer), "", 100*time.Millisecond)
				return err == nil && len(all) == 0
			}, 10*time.Second, 10*time.Millisecond)
			call, stop := context.WithCancel(ctx)
			done, cause := make(chan error, 1), make(chan error, 10)
			go func() { done <- consume(call, cause) }()
			_, err := js.Publish(ctx, "jobs.a", nil)
			require.NoError(t, err)
			var l running.List
			require.Eventually(t, func() bool {
				all, err := running.Ask[running.List](ctx, nc, running.ListSubject(stream, consumer), "", 100*time.Millisecond)
				if err == nil && len(all) == 1 {
					l = all[0]
				}
				return len(l.Running) == 1
			}, 10*time.Second, 10*time.Millisecond)
			m := l.Running[0]
			require.Equal(t, "jobs.a", m.Subject)
			require.EqualValues(t, 1, m.Attempt)
			require.WithinDuration(t, time.Now(), m.Since, time.Minute)
			require.NotEmpty(t, l.Host)

			var ping micro.Ping
			answer, err := nc.Request("$SRV.PING.loaders", nil, 5*time.Second)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(answer.Data, &ping))
			require.Equal(t, l.Instance, ping.ID)
			require.Equal(t, map[string]string{"stream": stream, "consumer": consumer}, ping.Metadata)

			cancel := func(body string) ([]running.Cancelled, error) {
				return running.Ask[running.Cancelled](ctx, nc, running.CancelSubject(stream, consumer), body, 200*time.Millisecond)
			}
			answers, err := cancel(fmt.Sprint(m.Sequence + 1))
			require.NoError(t, err)
			require.Equal(t, []running.Cancelled{{Worker: l.Worker}}, answers)
			_, err = cancel("x")
			require.ErrorContains(t, err, `"x" is not the sequence of a message`)
			answers, err = cancel(fmt.Sprint(m.Sequence))
			require.NoError(t, err)
			require.True(t, answers[0].Cancelled)
			err = <-cause
			require.True(t, errors.Is(err, jetpull.ErrCancelled), "%v", err)
			require.ErrorContains(t, err, fmt.Sprintf("sequence %d", m.Sequence))
			require.Eventually(t, func() bool { return sub.Stats().Terminated > 0 && sub.Stats().Running == 0 }, 10*time.Second, 10*time.Millisecond)
			stop()
			require.NoError(t, <-done)
		})
	}
}
