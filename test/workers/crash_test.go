package workers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// A message that ends its process becomes a dead letter with its reason, and a message beside it does not.
func TestAMessageThatKillsItsProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		killers, innocent int
		cfg               jetstream.ConsumerConfig
		settings          workerSettings
	}{
		"alone":         {killers: 1, settings: workerSettings{Concurrency: 1, MaxCrashes: 2}},
		"among others":  {killers: 1, innocent: 64, settings: workerSettings{Concurrency: 65, MaxCrashes: 2}},
		"two":           {killers: 2, innocent: 64, settings: workerSettings{Concurrency: 66, MaxCrashes: 2}},
		"in partitions": {killers: 1, innocent: 16, settings: workerSettings{Concurrency: 17, MaxCrashes: 2, Partitions: 2}},
		"with MaxDeliver": {
			killers: 1, innocent: 8, cfg: jetstream.ConsumerConfig{MaxDeliver: 10}, settings: workerSettings{Concurrency: 9, MaxCrashes: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			server := servertest.RunServer(t)
			js := server.JetStream(t, server.Connect(t))
			tt.settings.URL, tt.settings.Work = server.URL(), 20*time.Millisecond
			jobs := natstest.StreamWith(t, js, jetstream.StreamConfig{Name: stream, Subjects: []string{"jobs.>"}})
			dead := natstest.StreamWith(t, js, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}})
			_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, TTL: 24 * time.Hour})
			require.NoError(t, err)
			if tt.settings.Partitions == 0 {
				tt.cfg.Durable, tt.cfg.AckWait, tt.cfg.AckPolicy = consumer, time.Second, jetstream.AckExplicitPolicy
				_, err := jobs.CreateConsumer(ctx, tt.cfg)
				require.NoError(t, err)
			}
			var killers []string
			for i := range tt.killers + tt.innocent {
				data := fmt.Sprint(i)
				if i%32 == 7 || tt.innocent == 0 {
					if len(killers) < tt.killers {
						data = killer
						killers = append(killers, fmt.Sprint(i+1))
					}
				}
				_, err := js.Publish(ctx, fmt.Sprintf("jobs.%d.%d", i%max(1, tt.settings.Partitions), i), []byte(data))
				require.NoError(t, err)
			}
			require.Len(t, killers, tt.killers)

			ended, lives := map[uint64]int{}, 0
			for done := false; !done; lives++ {
				require.Less(t, lives, 12, "processes that ended; handled: %d", len(ended))
				done = live(ctx, t, tt.settings, jobs, dead, tt.killers, tt.innocent, ended)
			}
			require.Len(t, ended, tt.innocent)
			var dying []string
			for i := range tt.killers {
				m, err := dead.GetMsg(ctx, uint64(i+1))
				require.NoError(t, err)
				dying = append(dying, m.Header.Get(jetpull.HeaderDeadSequence))
				require.Equal(t, "its process ended 2 times while it was handled", m.Header.Get(jetpull.HeaderDeadReason))
			}
			require.ElementsMatch(t, killers, dying)
			require.LessOrEqual(t, lives, 1+3*tt.killers+1)
			marks, err := js.KeyValue(ctx, bucket)
			require.NoError(t, err)
			lister, err := marks.ListKeys(ctx)
			require.NoError(t, err)
			var keys []string
			for key := range lister.Keys() {
				keys = append(keys, key)
			}
			require.LessOrEqual(t, len(keys), tt.killers, "records of messages that were handled: %q", keys)
		})
	}
}

// live runs a worker until it ends by itself, or all is done.
func live(ctx context.Context, t *testing.T, s workerSettings, jobs, dead jetstream.Stream, killers, innocent int, ended map[uint64]int) bool {
	t.Helper()
	l := start(t, s)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for until := time.After(time.Minute); ; {
		select {
		case line, ok := <-l.lines:
			if !ok {
				_ = l.cmd.Wait()
				return false
			}
			if line.Kind == "end" {
				ended[line.Seq]++
			}
		case <-tick.C:
			info, err := dead.Info(ctx)
			require.NoError(t, err)
			if int(info.State.Msgs) >= killers && len(ended) == innocent && settled(ctx, t, jobs) {
				l.stop()
				return true
			}
		case <-until:
			l.stop()
			require.Fail(t, "the worker goes on", "handled: %d", len(ended))
		}
	}
}

// settled reports whether the consumers of a stream have no message left.
func settled(ctx context.Context, t *testing.T, jobs jetstream.Stream) bool {
	t.Helper()
	left := 0
	consumers := jobs.ListConsumers(ctx)
	for info := range consumers.Info() {
		left += int(info.NumPending) + info.NumAckPending
	}
	require.NoError(t, consumers.Err())
	return left == 0
}
