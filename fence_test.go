package jetpull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// delivered is a message as a client gets it.
func delivered(times, seq, cseq uint64) *Msg {
	return &Msg{
		raw: &nats.Msg{Reply: natstest.AckReply("S", "C", times, seq, cseq, time.Unix(1, 0), 0)},
		sub: &Subscription{ackPrefix: "$JS.ACK.S.C."},
	}
}

func TestCoalescerFindsGaps(t *testing.T) {
	for name, tt := range map[string]struct {
		arrivals [][]uint64 // consumer sequences
		gaps     []uint64
	}{
		"from the first":               {[][]uint64{{1, 2}, {3}, {4, 5}}, []uint64{0, 0, 0}},
		"the first is not the first":   {[][]uint64{{7, 8}, {9}}, []uint64{7, 0}},
		"between two arrivals":         {[][]uint64{{1, 2}, {6, 7}, {8}}, []uint64{0, 6, 0}},
		"within one":                   {[][]uint64{{1, 2, 4, 5}, {6}}, []uint64{4, 0}},
		"the last of two":              {[][]uint64{{1, 3, 4, 8, 9}}, []uint64{8}},
		"a consumer that was made new": {[][]uint64{{1, 2, 3}, {1, 2}}, []uint64{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCoalescer(0)
			seq := uint64(0)
			for i, cseqs := range tt.arrivals {
				var ms []*Msg
				for _, cseq := range cseqs {
					seq++
					ms = append(ms, delivered(1, seq, cseq))
				}
				require.Equal(t, tt.gaps[i], c.hold(ms), "arrival %d", i)
			}
		})
	}
}

func TestCoalescerCountsWhatIsMissing(t *testing.T) {
	info := func(pending int, floor, cseq uint64) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{
			NumAckPending: pending,
			AckFloor:      jetstream.SequenceInfo{Stream: floor},
			Delivered:     jetstream.SequenceInfo{Consumer: cseq},
		}
	}
	c := newCoalescer(0)
	c.hold([]*Msg{delivered(1, 3, 3), delivered(1, 4, 4), delivered(1, 8, 8), delivered(1, 9, 9)})
	c.ack(delivered(1, 3, 3))
	c.timer.Stop()
	c.gone[7] = time.Now()
	for _, tt := range []struct {
		what string
		gone int
		info *jetstream.ConsumerInfo
		want int
	}{
		{"5 to 7", 1, info(7, 2, 9), 3},
		{"5 to 7; 9 came since the answer", 1, info(6, 2, 8), 3},
		{"none: they were settled, the one that was handed back too", 0, info(4, 2, 9), 0},
		{"none, and 3 is acknowledged too", 0, info(3, 3, 9), 0},
		{"fewer than are in hand", 0, info(1, 2, 9), -3},
	} {
		require.Equal(t, tt.want, c.missing(tt.info, 0), tt.what)
		require.Len(t, c.gone, tt.gone, tt.what)
	}
	// A server that forgot the first delivery of 3 delivers it as if for the first time.
	c.hold([]*Msg{delivered(1, 3, 10)})
	require.Equal(t, 3, c.missing(info(7, 2, 10), 0), "5 to 7: what came twice counts once")
}

// TestAckNumbersBeginAgain: a consumer that was made anew, and a server that crashed,
// number their deliveries from below what was acknowledged. An acknowledgement with a
// higher number than was delivered would put the server's ack floor ahead of it.
func TestAckNumbersBeginAgain(t *testing.T) {
	for _, tt := range []struct{ seq, cseq uint64 }{{1, 1}, {60, 34}, {60, 49}} {
		c := newCoalescer(0)
		take := func(seq, cseq uint64) uint64 {
			c.hold([]*Msg{delivered(1, seq, cseq)})
			c.ack(delivered(1, seq, cseq))
			c.timer.Stop()
			_, as := c.cut()
			return as
		}
		require.EqualValues(t, 50, take(50, 50))
		require.Equal(t, tt.cseq, take(tt.seq, tt.cseq))
		require.Equal(t, tt.cseq+1, take(tt.seq+1, tt.cseq+1))
	}
}

func TestAckNumber(t *testing.T) {
	for name, tt := range map[string]struct {
		top   delivery
		left  []delivery
		acked uint64
		want  uint64
	}{
		"alone":                                {delivery{3, 3}, nil, 2, 3},
		"in order":                             {delivery{3, 3}, []delivery{{4, 4}, {5, 5}}, 2, 3},
		"again, before the next":               {delivery{3, 9}, []delivery{{4, 4}, {5, 5}}, 2, 3},
		"again, first of some":                 {delivery{1, 16}, []delivery{{2, 17}, {3, 18}, {6, 11}, {7, 12}}, 0, 8},
		"again, last of some":                  {delivery{3, 18}, []delivery{{6, 11}, {7, 12}}, 9, 10},
		"what it covers does not count":        {delivery{5, 9}, []delivery{{1, 1}, {6, 12}}, 0, 9},
		"above the last one where no room is":  {delivery{3, 9}, []delivery{{4, 4}}, 3, 4},
		"no room below what is left, nor zero": {delivery{1, 9}, []delivery{{2, 10}, {3, 1}}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, ackNumber(tt.top, tt.left, tt.acked)) })
	}
}

func TestWithConsumerSeq(t *testing.T) {
	at := time.Unix(1, 0)
	require.Equal(t, natstest.AckReply("S", "C", 2, 7, 5, at, 3), withConsumerSeq(natstest.AckReply("S", "C", 2, 7, 99, at, 3), 5))
	require.Equal(t, natstest.AckReplyV2("hub", "acc", "S", "C", 2, 7, 5, at, 3)+".tok",
		withConsumerSeq(natstest.AckReplyV2("hub", "acc", "S", "C", 2, 7, 99, at, 3)+".tok", 5))
}

// TestDispatchFence: the message that is being handled is not held up, those
// behind the fence come in stream order.
func TestDispatchFence(t *testing.T) {
	d := newDispatch(1, true, nil)
	d.push(0, []*Msg{delivered(1, 1, 1), delivered(1, 2, 2)})
	first, _, _, _ := d.pop(&slot{}, nil)
	require.True(t, d.raiseFence(9))
	_, freed, _ := d.push(0, []*Msg{delivered(1, 9, 9), delivered(2, 4, 10), delivered(1, 11, 11)})
	require.Equal(t, 1, freed, "one that is delivered again is not in the window")
	d.settled(first)
	require.True(t, d.empty())
	require.False(t, d.raiseFence(12), "it is up already")
	require.False(t, d.dropFence(11), "a gap came since")
	freed, bytes := d.widen(1)
	require.Equal(t, 3, freed, "2, 9 and 11")
	require.Positive(t, bytes)
	require.True(t, d.dropFence(12))
	var got []uint64
	for !d.empty() {
		h, _, _, _ := d.pop(&slot{}, nil)
		got = append(got, h.m.Sequence())
		d.settled(h)
	}
	require.Equal(t, []uint64{2, 4, 9, 11}, got)
	require.Empty(t, d.lines)
	require.Zero(t, d.back)
}

func TestDispatchFenceOpensTheWindowSlowlyInTheEnd(t *testing.T) {
	d := newDispatch(1, true, nil)
	d.raiseFence(1)
	seq := uint64(0)
	push := func(n int) {
		for range n {
			seq++
			d.push(0, []*Msg{delivered(1, seq, seq)})
		}
	}
	push(maxBack)
	freed, _ := d.widen(fenceStep)
	require.Equal(t, maxBack, freed)
	push(100)
	freed, _ = d.widen(fenceStep)
	require.Equal(t, fenceStep, freed)
}

// TestConsumeAckAllAfterACut: what the server delivered into a connection that
// broke is unknown to the client, and must not be covered by the
// acknowledgement of what comes after it.
func TestConsumeAckAllAfterACut(t *testing.T) {
	for _, tt := range []struct {
		size int
		each time.Duration // longer than coalesceFor: each is acknowledged by itself
	}{{1, 0}, {10, 0}, {0, 0}, {10, 50 * time.Millisecond}, {0, 50 * time.Millisecond}} {
		t.Run(fmt.Sprintf("prefetch %d, %v each", tt.size, tt.each), func(t *testing.T) {
			onStage(t, ackAll, func(t *testing.T, s *stage) {
				var j journal
				var opts []Option
				if tt.size > 0 {
					opts = append(opts, Prefetch(tt.size))
				}
				r := s.consume(j.handler(tt.each), opts...)
				s.publish(5)
				pass(time.Second)
				s.loseSome(5)
				s.publish(50)
				pass(20 * time.Second)
				require.Equal(t, upTo(5), j.all(), "those behind the ones that are lost wait")
				pass(10 * time.Minute)
				require.NoError(t, r.stop())
				require.Equal(t, upTo(60), j.all(), "in stream order, and once")
				require.Zero(t, s.unsettled())
			})
		})
	}
}

// loseSome publishes n messages that are delivered, and lost with the
// connection.
func (s *stage) loseSome(n int) {
	s.peer.Pause(true)
	s.publish(n)
	s.peer.Cut()
	s.peer.Pause(false)
	s.forgetAll()
	pass(time.Second)
}

// TestConsumeAckAllAfterManyCuts: some are lost several times.
func TestConsumeAckAllAfterManyCuts(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		var j journal
		r := s.consume(j.handler(time.Millisecond))
		for range 20 {
			s.publish(7)
			pass(7 * time.Second)
			s.loseSome(3)
		}
		pass(10 * time.Minute)
		require.NoError(t, r.stop())
		require.Subset(t, j.all(), upTo(200))
		require.Zero(t, s.unsettled())
	})
}

// TestConsumeAckAllAfterACrash: another client got messages and died.
func TestConsumeAckAllAfterACrash(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(100)
		_, err := s.sub.Fetch(t.Context(), 30)
		require.NoError(t, err)
		var j journal
		r := s.consume(j.handler(0))
		pass(10 * time.Second)
		require.Empty(t, j.all(), "the acknowledgement of 31 would cover 1 to 30")
		pass(time.Minute)
		require.Equal(t, upTo(100), j.all())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

// TestConsumeAckAllAfterTheServerForgot: a server that crashed has forgotten what it
// delivered, and got acknowledgements of that since. It numbers its deliveries from
// below its ack floor again, does not count those there, and takes no acknowledgement
// of them. They are handled at once, and acknowledged when they have come again with
// numbers that are above.
func TestConsumeAckAllAfterTheServerForgot(t *testing.T) {
	for name, died := range map[string]int{"all come to Consume": 0, "some came to a client that died": 2} {
		t.Run(name, func(t *testing.T) {
			onStage(t, ackAll, func(t *testing.T, s *stage) {
				s.do(func() { s.cseqs, s.floor.Consumer = 3, 15 })
				s.publish(4)
				if died > 0 {
					_, err := s.sub.Fetch(t.Context(), died)
					require.NoError(t, err)
				}
				var j journal
				r := s.consume(j.handler(0))
				pass(time.Second)
				require.Equal(t, upTo(4)[died:], j.all())
				require.Equal(t, 4, s.unsettled(), "what the dead client had is covered by none")
				require.Len(t, s.logs.with("acknowledgements wait"), 1)
				pass(10 * time.Minute)
				require.ElementsMatch(t, upTo(4), j.all(), "each is handled once")
				require.Zero(t, s.unsettled())
				s.publish(4)
				pass(time.Second)
				require.Equal(t, upTo(8)[4:], j.all()[4:])
				require.Zero(t, s.unsettled())
				require.Empty(t, s.logs.with("pending elsewhere"))
				require.NoError(t, r.stop())
			})
		})
	}
}

// TestStopWhileAcknowledgementsWait: what was handled and could not be acknowledged
// goes back with the rest.
func TestStopWhileAcknowledgementsWait(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.do(func() { s.cseqs, s.floor.Consumer = 3, 15 })
		s.publish(4)
		var j journal
		r := s.consume(j.handler(0))
		pass(time.Second)
		require.Equal(t, upTo(4), j.all())
		require.NoError(t, r.stop())
		require.Equal(t, 4, s.count("-NAK", 0))
		require.Zero(t, s.count("+ACK", 0))
	})
}

// TestConsumeAckAllBesideAnotherClient: what another client holds on to is not
// covered, and the log says what handling waits for.
func TestConsumeAckAllBesideAnotherClient(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(10)
		others, err := s.sub.Fetch(t.Context(), 3)
		require.NoError(t, err)
		var j journal
		r := s.consume(j.handler(0))
		for range 20 {
			pass(10 * time.Second)
			for _, m := range others {
				require.NoError(t, m.InProgress())
			}
		}
		require.Empty(t, j.all())
		warned := s.logs.with("pending elsewhere")
		require.Len(t, warned, 1)
		require.Contains(t, warned[0], "missing=3")
		require.NoError(t, others[2].Ack())
		pass(time.Second)
		require.Equal(t, []int{4, 5, 6, 7, 8, 9, 10}, j.all())
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

// TestConsumeAckAllAsksOnlyAboutGaps counts the questions of a consumer without
// any, of one that begins behind others, and of one that cannot be answered.
func TestConsumeAckAllAsksOnlyAboutGaps(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		asked, silent := 0, false
		s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, r natstest.Request) {
			var mute bool
			s.do(func() { asked++; mute = silent })
			if !mute {
				<-time.After(time.Millisecond) // all that the answer counts has arrived
				s.tell(p, r)
			}
		})
		var j journal
		for round := range 3 {
			s.do(func() { silent = round == 2 })
			r := s.consume(j.handler(0))
			s.publish(100)
			pass(10 * time.Second)
			if round < 2 {
				require.Equal(t, upTo(100*(round+1)), j.all())
				require.Equal(t, round, asked)
			} else {
				require.Equal(t, upTo(200), j.all(), "the fence stays until the server answers")
				s.do(func() { silent = false })
				pass(2 * time.Second)
				require.Equal(t, upTo(300), j.all())
				require.InDelta(t, 10, asked, 2)
			}
			require.NoError(t, r.stop())
		}
		require.Zero(t, s.unsettled())
	})
}

// TestConsumeAckAllCutWithAFailedMessage: the line is held up by a message that
// failed when others are lost behind it.
func TestConsumeAckAllCutWithAFailedMessage(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		failed := map[int]bool{}
		settlesFailed(t, s, &failed)
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			seq := int(m.Sequence())
			if m.Delivered() == 1 && seq == 3 {
				s.do(func() { failed[seq] = true })
				return Retry(10*time.Second, errors.New("once"))
			}
			s.do(func() { delete(failed, seq) })
			j.note(m)
			return nil
		})
		s.publish(5)
		pass(time.Second)
		s.loseSome(5)
		s.publish(5)
		pass(5 * time.Minute)
		require.NoError(t, r.stop())
		require.Equal(t, upTo(15), j.all())
		require.Zero(t, s.unsettled())
	})
}
