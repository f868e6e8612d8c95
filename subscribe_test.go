package jetpull_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// Servers of old versions are refused, because their pulls work differently.
func TestSubscribeRefusesOldServers(t *testing.T) {
	for version, refused := range map[string]bool{"2.10.29": true, "1.4.1": true, "2.11.0": false, "3.0.0": false, "dev": false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go serve(l, version)
		nc, err := nats.Connect("nats://" + l.Addr().String())
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		_, err = jetpull.Subscribe(t.Context(), js, "S", "C")
		require.Equal(t, refused, strings.Contains(err.Error(), `server "old" has version `+version), "%s: %v", version, err)
		nc.Close()
		require.NoError(t, l.Close())
	}
}

// The error of a request without a connection says that there is none, and contains no password.
func TestRequestsWithoutAConnection(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		stage.Pass(time.Minute)
		w.disconnect()
		for name, request := range map[string]func() error{
			"Subscribe": func() error { _, err := jetpull.Subscribe(t.Context(), w.JS, "S", "C"); return err },
			"Info":      func() error { _, err := w.sub.Info(t.Context()); return err },
			"Unpin":     func() error { return jetpull.Unpin(t.Context(), w.JS, "S", "C", "g") },
			"DoubleAck": func() error { return m.DoubleAck(t.Context()) },
			"Consume": func() error {
				return w.sub.Consume(t.Context(), nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
			},
		} {
			begun := time.Now()
			err := request()
			require.ErrorIs(t, err, jetpull.ErrTimeout, name)
			require.ErrorContains(t, err, "not connected to ", name)
			require.ErrorContains(t, err, ", since "+begun.Format(time.TimeOnly)+" or longer", name)
			require.Equal(t, 5*second, time.Since(begun), name)
		}
		w.reconnect()
		stage.Pass(second)
	})
}

// A cluster without a leader reports that, or does not answer. Subscribe and Info repeat the request.
func TestSubscribeInALeaderGap(t *testing.T) {
	for name, answer := range map[string]func(*world, natstest.Op) bool{
		"refused": func(w *world, op natstest.Op) bool {
			return w.Peer.ReplyError(op.Reply, 503, 10008, "JetStream system temporarily unavailable")
		},
		"silent": func(*world, natstest.Op) bool { return true },
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			for _, gap := range []time.Duration{2 * second, time.Hour} {
				from := time.Now()
				w.Take(func(op natstest.Op) bool {
					return strings.Contains(op.Subject, ".CONSUMER.INFO.") && time.Since(from) < gap && answer(w, op)
				})
				_, err := w.sub.Info(t.Context())
				if gap < time.Minute {
					require.NoError(t, err)
					w.subscribe(w.JS)
					continue
				}
				require.Equal(t, 5*second, time.Since(from))
				require.ErrorContains(t, err, map[string]string{"refused": "temporarily unavailable", "silent": "no answer"}[name])
			}
		}))
	}
}

// serve is a server of a version that has no consumers.
func serve(l net.Listener, version string) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "INFO {\"server_name\":\"old\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
	sid := ""
	for in := bufio.NewScanner(conn); in.Scan(); {
		switch verb, rest, _ := strings.Cut(in.Text(), " "); verb {
		case "PING":
			_, _ = fmt.Fprint(conn, "PONG\r\n")
		case "SUB":
			sid = rest[strings.LastIndexByte(rest, ' ')+1:]
		case "PUB": // a request for the consumer's info, answered on the latest subscription
			_, _ = fmt.Fprintf(conn, "HMSG %s %s 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", strings.Fields(rest)[1], sid)
		}
	}
}
