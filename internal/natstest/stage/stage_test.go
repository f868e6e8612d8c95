package stage

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestRecordsAndBreaks(t *testing.T) {
	Run(t, Config{Consumer: jetstream.ConsumerConfig{AckWait: time.Minute}}, func(s *Stage) {
		frames := make(chan *nats.Msg, 10)
		_, err := s.NC.ChanSubscribe("inbox", frames)
		require.NoError(t, err)
		pull := func(body string) {
			require.NoError(t, s.NC.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "inbox", []byte(body)))
			synctest.Wait()
		}
		pull(`{"batch":2,"expires":5000000000}`)
		require.Len(t, s.Pulls(), 1)
		require.Equal(t, 2, s.Pulls()[0].Req.Batch)
		s.Publish(1)
		m := <-frames
		require.Equal(t, "1", string(m.Data))

		s.LoseAcks(func(a Ack) bool { return a.Verb == "-NAK" })
		require.NoError(t, s.NC.Publish(m.Reply, []byte("-NAK {\"delay\":1}")))
		require.Equal(t, `{"delay":1}`, s.Acks("-NAK", 1)[0].Arg)
		require.Equal(t, 1, s.C().State().NumAckPending)
		s.Deaf(true)
		require.NoError(t, s.NC.Publish(m.Reply, nil))
		require.Equal(t, []int{1}, s.Acked("+ACK"))
		require.Equal(t, 1, s.C().State().NumAckPending, "a deaf server gets no acknowledgement")
		s.Deaf(false)
		s.LoseAcks(nil)
		require.NoError(t, s.NC.Publish(m.Reply, nil))
		require.Len(t, s.Acks("+ACK", 1), 2)
		require.Zero(t, s.C().State().NumAckPending)

		s.Take(func(op natstest.Op) bool { return op.Subject == "s.gone" })
		require.NoError(t, s.NC.Publish("s.gone", nil))
		require.NoError(t, s.NC.Publish("s.there", []byte("x")))
		m = <-frames
		require.Equal(t, "s.there", m.Subject)
		require.Equal(t, natstest.Data{Subject: "s.there", Body: []byte("x")}, s.Model.Message("S", 2))
		require.Equal(t, []uint64{2}, s.C().Held())
		pull(`{"batch":1,"expires":60000000000}`)

		s.C().EndPulls(409, "Server Shutdown")
		m = <-frames
		require.Equal(t, []string{"409", "1"}, []string{m.Header.Get("Status"), m.Header.Get("Nats-Pending-Messages")})
		before := time.Now()
		Pass(time.Second)
		pull("")
		require.Len(t, s.PullsSince(before.Add(time.Millisecond)), 1)
		s.C().DropPulls()
		s.TakePulls(All)
		pull("7")
		require.Len(t, s.Pulls(), 4)
		require.Zero(t, s.C().State().NumWaiting)
		require.True(t, s.Peer.Deliver("inbox", s.Message(9)))
		require.Equal(t, "9", string((<-frames).Data))
		require.Len(t, s.Ops("SUB"), 1)

		s.Crash(time.Second)
		require.Equal(t, 3, s.PublishTo("s.b", nil, strconv.Itoa(3)))
		require.Empty(t, frames)
		require.Equal(t, 2*time.Second, s.Elapsed())
	})
}

func TestLogsAndJournal(t *testing.T) {
	logs, journal := &Logs{}, &Journal{}
	logs.Logger().Debug("one", "n", 7)
	logs.Logger().Warn("two", "n", 7)
	require.Len(t, logs.With("n=7"), 2)
	require.Len(t, logs.With("WARN", "n=7"), 1)
	require.Empty(t, logs.With("DEBUG", "two"))
	require.Equal(t, []int{1, 1, 2}, []int{journal.Note(1), journal.Note(2), journal.Note(2)})
	require.Equal(t, []int{1, 2, 2}, journal.All())
	require.Equal(t, 3, journal.Len())
	require.Equal(t, []int{1, 2, 3}, UpTo(3))
}
