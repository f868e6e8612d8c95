package jetpull

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

var pinnedConsumer = jetstream.ConsumerConfig{
	PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g", "h"}, PinnedTTL: time.Minute,
}

// pinLog notes the changes of a pin.
type pinLog struct {
	mu     sync.Mutex
	events []string
}

func (l *pinLog) note(what string) func(PinEvent) {
	return func(e PinEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, what+" "+e.Group+" "+e.ID)
	}
}

func (l *pinLog) all() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.events...)
}

func (s *script) setPin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pin = id
}

// pinServer answers pulls as the server of a pinned consumer does: a pull with
// another id than the pinned one gets 423.
func (s *script) pinServer(p natstest.Pull) bool {
	if p.Req.ID != "" && p.Req.ID != s.pin {
		return s.peer.Status(p.Reply, 423, "Nats-Pin-Id mismatch")
	}
	return false
}

func TestPinsOfNextFetchAndAckNext(t *testing.T) {
	var log pinLog
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		s.answers(s.pinServer)
		id, ok := s.sub.Pin()
		require.False(t, ok)
		require.Empty(t, id)
		s.setPin("one")
		s.publish(10)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		id, ok = s.sub.Pin()
		require.True(t, ok)
		require.Equal(t, "one", id)
		require.Equal(t, "one", s.sub.Stats().Pin)
		_, err = s.sub.Fetch(t.Context(), 2)
		require.NoError(t, err)
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
		for i, p := range s.got() {
			require.Equal(t, "g", p.Req.Group)
			require.Equal(t, i > 0, p.Req.ID == "one", "every pull after the first sends the id")
		}
		require.Equal(t, []string{"gained g one"}, log.all())

		// Another client is pinned now: the 423 is never shown.
		s.setPin("two")
		before := len(s.got())
		m, err = m.AckNext(t.Context())
		require.NoError(t, err)
		pulls := s.got()[before:]
		require.Equal(t, "one", pulls[0].Req.ID)
		require.True(t, pulls[0].Next)
		require.Empty(t, pulls[1].Req.ID)
		require.False(t, pulls[1].Next, "it has been acknowledged")
		require.Equal(t, []string{"gained g one", "lost g one", "gained g two"}, log.all())
		require.EqualValues(t, 1, s.sub.Stats().Statuses[423])
		require.EqualValues(t, 5, m.Sequence())
	}, Group("g"), OnPin(log.note("gained")), OnUnpin(log.note("lost")))
}

func TestAWrongPinOfAQueuedPull(t *testing.T) {
	var log pinLog
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		s.setPin("one")
		s.publish(1)
		_, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		got := s.next(t.Context(), MaxWait(20*time.Second))
		after(time.Second)
		s.mu.Lock()
		s.pin = "two"
		s.end(s.waiting[0], 423, "Nats-Wrong-Pin-Id", "Nats-Pending-Messages", "1", "Nats-Pending-Bytes", "0")
		s.mu.Unlock()
		require.Equal(t, []string{"gained g one", "lost g one"}, log.all())
		_, ok := s.sub.Pin()
		require.False(t, ok)
		require.Empty(t, got, "the call goes on as a stand-by")
		after(time.Second)
		s.publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.Equal(t, 2*time.Second, r.at)
		require.Equal(t, []string{"gained g one", "lost g one", "gained g two"}, log.all())
	}, Group("g"), OnPin(log.note("gained")), OnUnpin(log.note("lost")))
}

func TestACallbackThatBlocksHoldsUpNothing(t *testing.T) {
	var log pinLog
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		blocked := make(chan struct{})
		s.setPin("one")
		s.publish(100)
		_, err := s.sub.Next(t.Context(), OnPin(func(e PinEvent) {
			<-blocked
			log.note("gained")(e)
		}))
		require.NoError(t, err)
		for range 50 {
			_, err := s.sub.Next(t.Context())
			require.NoError(t, err)
		}
		s.setPin("two")
		_, err = s.sub.Next(t.Context())
		require.NoError(t, err)
		require.Zero(t, time.Since(s.start))
		require.Empty(t, log.all())
		close(blocked)
		require.Equal(t, []string{"gained g one", "lost g one", "default g two"}, log.all(), "in order, once each")
	}, Group("g"), OnPin(log.note("default")), OnUnpin(log.note("lost")))
}

func TestOnPinOfACallHoldsForTheCall(t *testing.T) {
	var log pinLog
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		s.publish(3)
		s.setPin("one")
		_, err := s.sub.Next(t.Context(), OnPin(log.note("call")))
		require.NoError(t, err)
		s.setPin("two")
		_, err = s.sub.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"call g one", "default g two"}, log.all())
	}, Group("g"), OnPin(log.note("default")))
}

func TestPinsAreKeptByGroup(t *testing.T) {
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		s.publish(3)
		s.setPin("one")
		_, err := s.sub.Next(t.Context())
		require.NoError(t, err)
		s.setPin("")
		m, err := s.sub.Next(t.Context(), Group("h"))
		require.NoError(t, err)
		_, err = m.AckNext(t.Context())
		require.NoError(t, err)
		pulls := s.got()
		require.Empty(t, pulls[1].Req.ID, "the pin of another group is not sent")
		require.Equal(t, "h", pulls[2].Req.Group, "AckNext pulls with the terms that brought the message")
		id, _ := s.sub.Pin()
		require.Equal(t, "one", id)
	}, Group("g"))
}

func TestALongPullUnderAPinThatExpiresSoon(t *testing.T) {
	cfg := pinnedConsumer
	cfg.PinnedTTL = 8 * time.Second
	var log bytes.Buffer
	virtually(t, cfg, func(t *testing.T, _ *script) {
		require.Contains(t, log.String(), "priority_timeout=8s")
	}, Group("g"), Logger(slog.New(slog.NewTextHandler(&log, nil))))
	log.Reset()
	virtually(t, pinnedConsumer, func(t *testing.T, _ *script) {
		require.Empty(t, log.String())
	}, Group("g"), Logger(slog.New(slog.NewTextHandler(&log, nil))))
}

func TestUnpinAsksTheServer(t *testing.T) {
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		var asked []natstest.Request
		var answer any = map[string]string{"type": "io.nats.jetstream.api.v1.consumer_unpin_response"}
		s.peer.OnRequest("$JS.API.CONSUMER.UNPIN.S.C", func(p *natstest.Peer, r natstest.Request) {
			asked = append(asked, r)
			if answer != nil {
				p.ReplyJSON(r.Reply, answer)
			}
		})
		require.NoError(t, s.sub.Unpin(t.Context()))
		require.NoError(t, Unpin(t.Context(), s.js, "S", "C", "h"))
		require.Len(t, asked, 2)
		require.JSONEq(t, `{"group":"g"}`, string(asked[0].Body))
		require.JSONEq(t, `{"group":"h"}`, string(asked[1].Body))

		answer = map[string]any{"error": map[string]any{"code": 400, "err_code": 10160, "description": "priority group not found"}}
		err := s.sub.Unpin(t.Context())
		require.ErrorContains(t, err, "priority group not found")
		var api *jetstream.APIError
		require.ErrorAs(t, err, &api)
		require.EqualValues(t, 10160, api.ErrorCode)

		answer = json.RawMessage(`"not an object"`)
		require.Error(t, s.sub.Unpin(t.Context()))
		answer = nil // only the leader answers, and there is none
		start := time.Now()
		require.ErrorIs(t, s.sub.Unpin(t.Context()), ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.sub.Unpin(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, Unpin(t.Context(), s.js, "S", "other", "g"), ErrNoResponders)
	}, Group("g"))
}

func TestAdvisories(t *testing.T) {
	virtually(t, pinnedConsumer, func(t *testing.T, s *script) {
		sender := s.peer.Connect(t)
		send := func(subject, body string) { require.NoError(t, sender.Publish(subject, []byte(body))) }
		ctx, cancel := context.WithCancel(t.Context())
		type step struct {
			a   PinAdvisory
			err error
		}
		steps, done := make(chan step, 10), make(chan struct{})
		go func() {
			defer close(done)
			for a, err := range Advisories(ctx, s.js, "S", "C") {
				steps <- step{a, err}
			}
		}()
		synctest.Wait()
		send(pinnedAdvisory+".S.C", `{"stream":"S","consumer":"C","group":"g","pinned_id":"one"}`)
		send(unpinnedAdvisory+".S.C", `{"stream":"S","consumer":"C","group":"g","reason":"admin"}`)
		send(pinnedAdvisory+".S.other", `{"group":"x"}`)
		send(pinnedAdvisory+".S.C", `no json`)
		send(pinnedAdvisory+".S.C", `{"group":"h"}`)
		synctest.Wait()
		require.Len(t, steps, 4)
		require.Equal(t, PinAdvisory{Pinned: true, Stream: "S", Consumer: "C", Group: "g", ID: "one"}, (<-steps).a)
		require.Equal(t, PinAdvisory{Stream: "S", Consumer: "C", Group: "g", Reason: "admin"}, (<-steps).a)
		require.Error(t, (<-steps).err)
		require.Equal(t, "h", (<-steps).a.Group, "the loop goes on after one that cannot be read")
		before := s.nc.NumSubscriptions()
		cancel()
		<-done
		require.Empty(t, steps)
		require.Equal(t, before-2, s.nc.NumSubscriptions())

		// Breaking out unsubscribes too, and a closed connection is an error.
		go func() {
			synctest.Wait()
			send(pinnedAdvisory+".S.C", `{"group":"g"}`)
		}()
		for range Advisories(t.Context(), s.js, "S", "C") {
			break
		}
		require.Equal(t, before-2, s.nc.NumSubscriptions())
		after(time.Millisecond)
		closing := make(chan error, 1)
		go func() {
			for _, err := range Advisories(t.Context(), s.js, "S", "C") {
				closing <- err
			}
			close(closing)
		}()
		synctest.Wait()
		s.nc.Close()
		err := <-closing
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		_, more := <-closing
		require.False(t, more)
	}, Group("g"))
}
