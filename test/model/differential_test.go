package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

const (
	agreeWithin = 10 * time.Second
	lookEvery   = 2 * time.Millisecond
)

// runOnModel is what the model does after each step, in virtual time. It fills
// in the steps of a script that makes them up as it goes.
func runOnModel(t *testing.T, stream string, sc *script, cfg model.Config) []snapshot {
	t.Helper()
	var snaps []snapshot
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins in 2000, when the time in an ack subject had a digit
		// less, which counts in max_bytes.
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		m := model.New(t, cfg)
		m.AddStream(stream, stream+".>")
		c := m.AddConsumer(stream, sc.cfg)
		defer func() {
			if t.Failed() {
				t.Log(m.Dump())
			}
		}()
		deleted := false
		s := newSide(m.Connect(t), stream)
		s.publish = func(subject string, body []byte) { m.Publish(subject, nil, body) }
		s.unpin, s.update, s.queued = c.Unpin, c.Update, c.Queued
		s.remove = func() { c.Delete(); deleted = true }
		s.state = func() (model.State, error) {
			if deleted {
				return model.State{}, jetstream.ErrConsumerNotFound
			}
			return c.State(), nil
		}
		s.restart = func() {
			if cfg.Replicas > 1 {
				c.StepDown()
				time.Sleep(time.Second)
				return
			}
			m.Shutdown()
			time.Sleep(time.Second)
			m.Start()
			waitConnected(t, s.nc)
		}
		for i := 0; ; i++ {
			if sc.draw != nil && i == len(sc.steps) {
				sc.steps = append(sc.steps, sc.draw(s)...)
			}
			if i == len(sc.steps) {
				break
			}
			sc.steps[i].do(t, s)
			time.Sleep(5 * time.Millisecond) // for the quorum
			synctest.Wait()
			s.snapshot() // the info itself makes the consumer look at its pulls
			synctest.Wait()
			snaps = append(snaps, s.snapshot())
		}
	})
	return snaps
}

func waitConnected(t *testing.T, nc *nats.Conn) {
	t.Helper()
	for deadline := time.Now().Add(agreeWithin); !nc.IsConnected(); time.Sleep(lookEvery) {
		if time.Now().After(deadline) {
			t.Fatal("not connected again")
		}
	}
}

// tryFor repeats what a cluster may not yet be ready for.
func tryFor(try func() error) error {
	deadline := time.Now().Add(agreeWithin)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lookEvery)
	}
}

// waitForPulls waits until the consumer's leader takes pulls from nc. In a
// cluster it says that the consumer is there before the other servers know that
// it takes them, and until then they answer 503. A pull that no one can read
// changes nothing.
func waitForPulls(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	require.NoError(t, tryFor(func() error {
		msg, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT."+stream+".C", []byte("{"), time.Second)
		if err != nil {
			return err
		}
		if status := msg.Header.Get("Status"); status != "400" {
			return fmt.Errorf("a pull that cannot be read is answered with status %q, not 400", status)
		}
		return nil
	}))
}

// serverSide is a real server with the stream and consumer of a script.
func serverSide(t *testing.T, nc *nats.Conn, stream string, sc script, replicas int) *side {
	t.Helper()
	js := natstest.JetStream(t, nc)
	natstest.StreamWith(t, js, jetstream.StreamConfig{Name: stream, Replicas: replicas})
	require.NoError(t, tryFor(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), agreeWithin)
		defer cancel()
		_, err := js.CreateConsumer(ctx, stream, sc.cfg)
		return err
	}))
	waitForPulls(t, nc, stream)
	s := newSide(nc, stream)
	s.publish = func(subject string, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), agreeWithin)
		defer cancel()
		_, err := js.Publish(ctx, subject, body)
		require.NoError(t, err)
	}
	s.unpin = func(group string) {
		body, err := json.Marshal(map[string]string{"group": group})
		require.NoError(t, err)
		_, err = nc.Request("$JS.API.CONSUMER.UNPIN."+stream+".C", body, agreeWithin)
		require.NoError(t, err)
	}
	s.update = func(change func(*jetstream.ConsumerConfig)) {
		ctx, cancel := context.WithTimeout(t.Context(), agreeWithin)
		defer cancel()
		c, err := js.Consumer(ctx, stream, "C")
		require.NoError(t, err)
		cfg := c.CachedInfo().Config
		change(&cfg)
		_, err = js.UpdateConsumer(ctx, stream, cfg)
		require.NoError(t, err)
	}
	s.remove = func() {
		ctx, cancel := context.WithTimeout(t.Context(), agreeWithin)
		defer cancel()
		require.NoError(t, js.DeleteConsumer(ctx, stream, "C"))
	}
	s.state = func() (model.State, error) {
		// Short, for a request may go into a connection that is about to break.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := js.Consumer(ctx, stream, "C")
		if err != nil {
			return model.State{}, err // gone, or not to be had for the moment
		}
		i := c.CachedInfo()
		return model.State{
			Delivered: i.Delivered, AckFloor: i.AckFloor, NumPending: i.NumPending,
			NumAckPending: i.NumAckPending, NumRedelivered: i.NumRedelivered, NumWaiting: i.NumWaiting,
		}, nil
	}
	return s
}

// compare runs a script on a server and waits after each step until all is as
// the model has it.
func compare(t *testing.T, s *side, sc script, want []snapshot, view func(snapshot) snapshot) {
	t.Helper()
	for i, step := range sc.steps {
		step.do(t, s)
		wanted := view(want[i]).String()
		got := view(s.snapshot()).String()
		for deadline := time.Now().Add(agreeWithin); got != wanted && time.Now().Before(deadline); {
			time.Sleep(lookEvery)
			got = view(s.snapshot()).String()
		}
		require.Equal(t, wanted, got, "%+v\nafter step %d of\n%s; expected is the model, actual the server", sc.cfg, i, texts(sc.steps[:i+1]))
	}
}

func texts(steps []step) (text string) {
	for _, s := range steps {
		text += s.text + "\n"
	}
	return text
}

func inOrder(s snapshot) snapshot { return s }

// runAll compares scripts that need no server of their own.
func runAll(t *testing.T, nc func(t *testing.T) *nats.Conn, scripts []script, cfg model.Config, view func(snapshot) snapshot) {
	t.Helper()
	// The model first, alone: see natstest.NewPeer.
	wants := make([][]snapshot, len(scripts))
	for i := range scripts {
		wants[i] = runOnModel(t, streamName(i), &scripts[i], cfg)
	}
	t.Run("server", func(t *testing.T) {
		conn := nc(t)
		for i, sc := range scripts {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				compare(t, serverSide(t, conn, streamName(i), sc, max(1, cfg.Replicas)), sc, wants[i], view)
			})
		}
	})
}

func streamName(i int) string { return fmt.Sprintf("S%04d", i) }
