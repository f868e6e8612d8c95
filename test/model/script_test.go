package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// script is what a client does, step by step.
type script struct {
	name  string
	cfg   jetstream.ConsumerConfig
	steps []step
	// draw makes up the next steps from what has happened, until it has none.
	draw func(s *side) []step
}

// step is compared by itself. Its text is for messages.
type step struct {
	text string
	do   func(t *testing.T, s *side)
}

// list puts steps behind one another, after the subscription to what answers acks.
func list(parts ...[]step) []step { return slices.Concat(append([][]step{sub("acks")}, parts...)...) }

func one(do func(t *testing.T, s *side), format string, args ...any) []step {
	return []step{{fmt.Sprintf(format, args...), do}}
}

// pub publishes n messages of ten bytes, one after the other, and pubOf messages of a size.
func pub(n int) []step { return pubOf(n, 10) }

func pubOf(n, size int) []step {
	return slices.Repeat(one(func(_ *testing.T, s *side) { s.publish(s.stream+".x", []byte(strings.Repeat("x", size))) }, "pub %d", size), n)
}

// sub and unsub subscribe to an inbox and end that.
func sub(box string) []step {
	return one(func(t *testing.T, s *side) { s.subscribe(t, box) }, "sub %s", box)
}

func unsub(box string) []step {
	return one(func(t *testing.T, s *side) { require.NoError(t, s.inboxes[box].sub.Unsubscribe()) }, "unsub %s", box)
}

// pull sends a pull to be answered on an inbox. PIN in its body stands for the last pin seen there, and SIZE for the size of the
// last message, as max_bytes counts it.
func pull(box, body string) []step {
	return one(func(t *testing.T, s *side) {
		b := strings.NewReplacer("PIN", s.inboxes[box].pin, "SIZE", strconv.Itoa(s.inboxes[box].size())).Replace(body)
		require.NoError(t, s.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+s.stream+".C", s.subject(box), []byte(b)))
	}, "pull %s %s", box, body)
}

// ack sends an acknowledgement of the i-th message that came to an inbox. A NAK or a +WPI leaves no trace but a confirmation by
// which one could see when the server has taken it, so they ask for one, as confirm always does. It comes to the inbox "acks".
func ack(box string, i int, verb string) []step {
	if strings.HasPrefix(verb, "-NAK") || strings.HasPrefix(verb, "+WPI") {
		return confirm(box, i, verb)
	}
	return acknowledge(box, i, verb, false)
}

func confirm(box string, i int, verb string) []step { return acknowledge(box, i, verb, true) }

func acknowledge(box string, i int, verb string, confirmed bool) []step {
	return one(func(t *testing.T, s *side) {
		data, reply := s.inboxes[box].data, ""
		require.Less(t, i, len(data), "only so many messages have come to %s", box)
		if confirmed {
			reply = s.subject("acks")
		}
		require.NoError(t, s.nc.PublishMsg(&nats.Msg{Subject: data[i].Reply, Reply: reply, Data: []byte(verb)}))
	}, "ack %s %d %s", box, i, verb)
}

func sleep(ms int) []step {
	return one(func(*testing.T, *side) { time.Sleep(time.Duration(ms) * time.Millisecond) }, "sleep %d ms", ms)
}

// unpin, update, remove and restart happen to the consumer, restart to its leader.
func unpin(group string) []step {
	return one(func(_ *testing.T, s *side) { s.unpin(group) }, "unpin %s", group)
}

func update(changes string) []step {
	return one(func(t *testing.T, s *side) {
		s.update(func(cfg *jetstream.ConsumerConfig) { require.NoError(t, json.Unmarshal([]byte(changes), cfg)) })
	}, "update %s", changes)
}

func remove() []step  { return one(func(_ *testing.T, s *side) { s.remove() }, "delete") }
func restart() []step { return one(func(_ *testing.T, s *side) { s.restart() }, "restart") }

// side is where a script runs: the model or a server.
type side struct {
	nc       *nats.Conn
	stream   string
	publish  func(subject string, body []byte)
	state    func() (model.State, error)
	unpin    func(group string)
	update   func(change func(*jetstream.ConsumerConfig))
	remove   func()
	restart  func()
	queued   func() int // on the model: how many messages wait for redelivery
	inboxes  map[string]*inbox
	pinNames map[string]string
}

// inbox is what came to one subject.
type inbox struct {
	sub    *nats.Subscription
	ch     chan *nats.Msg
	frames []string
	data   []*nats.Msg
	pin    string
}

// size is that of the last message.
func (b *inbox) size() int {
	if len(b.data) == 0 {
		return 0
	}
	m := b.data[len(b.data)-1]
	return len(m.Subject) + len(m.Reply) + len(m.Data)
}

func newSide(nc *nats.Conn, stream string) *side {
	return &side{nc: nc, stream: stream, inboxes: map[string]*inbox{}, pinNames: map[string]string{}}
}

func (s *side) subject(name string) string { return "box." + s.stream + "." + name }

func (s *side) subscribe(t *testing.T, name string) {
	t.Helper()
	box := s.inboxes[name]
	if box == nil {
		box = &inbox{ch: make(chan *nats.Msg, 10_000)}
		s.inboxes[name] = box
	}
	sub, err := s.nc.ChanSubscribe(s.subject(name), box.ch)
	require.NoError(t, err)
	box.sub = sub
}

// collect takes in what has come.
func (s *side) collect() {
	for _, name := range slices.Sorted(maps.Keys(s.inboxes)) {
		box := s.inboxes[name]
		for len(box.ch) > 0 {
			m := <-box.ch
			if pin := m.Header.Get("Nats-Pin-Id"); pin != "" {
				box.pin = pin
				if s.pinNames[pin] == "" {
					s.pinNames[pin] = fmt.Sprintf("pin%d", len(s.pinNames)+1)
				}
			}
			if strings.HasPrefix(m.Reply, "$JS.ACK.") {
				box.data = append(box.data, m)
			}
			box.frames = append(box.frames, s.describe(m))
		}
	}
}

// timestamp is when a message was stored, in an ack subject.
var timestamp = regexp.MustCompile(`\.[0-9]{19}\.`)

// describe is a frame without what differs from run to run.
func (s *side) describe(m *nats.Msg) string {
	text := fmt.Sprintf("empty message on %s", strings.TrimPrefix(m.Subject, "box."))
	if strings.HasPrefix(m.Reply, "$JS.ACK.") {
		tokens := strings.Split(m.Reply, ".")
		text = fmt.Sprintf("%s count=%s sseq=%s cseq=%s pending=%s size=%d",
			m.Subject, tokens[4], tokens[5], tokens[6], tokens[8], len(m.Data))
	}
	var headers []string
	for key, values := range m.Header {
		for _, value := range values {
			value = timestamp.ReplaceAllString(value, ".time.")
			if name := s.pinNames[value]; name != "" {
				value = name
			}
			headers = append(headers, key+"="+value)
		}
	}
	slices.Sort(headers)
	if len(headers) > 0 {
		text += " " + strings.Join(headers, " ")
	}
	return text
}

// snapshot is all that can be compared.
type snapshot struct {
	state  model.State
	gone   string
	frames map[string][]string
}

func (s *side) snapshot() snapshot {
	s.collect()
	state, err := s.state()
	snap := snapshot{state: state, frames: map[string][]string{}}
	if err != nil {
		snap.gone = err.Error()
	}
	snap.state.Delivered.Last, snap.state.AckFloor.Last = nil, nil
	for name, box := range s.inboxes {
		snap.frames[name] = slices.Clone(box.frames)
	}
	return snap
}

// String shows a snapshot in lines that can be compared by eye.
func (s snapshot) String() string {
	text := fmt.Sprintf("delivered %d/%d floor %d/%d pending %d ack pending %d redelivered %d waiting %d %s\n",
		s.state.Delivered.Consumer, s.state.Delivered.Stream, s.state.AckFloor.Consumer, s.state.AckFloor.Stream,
		s.state.NumPending, s.state.NumAckPending, s.state.NumRedelivered, s.state.NumWaiting, s.gone)
	for _, name := range slices.Sorted(maps.Keys(s.frames)) {
		for i, frame := range s.frames[name] {
			text += fmt.Sprintf("%s %d: %s\n", name, i, frame)
		}
	}
	return text
}

// unordered is the snapshot as replicas allow it to differ: messages in their
// order, statuses anywhere between them.
func (s snapshot) unordered() snapshot {
	s.frames = maps.Clone(s.frames)
	for name := range s.frames {
		s.frames[name] = slices.Clone(s.frames[name])
		slices.SortStableFunc(s.frames[name], func(a, b string) int {
			aData, bData := strings.Contains(a, " sseq="), strings.Contains(b, " sseq=")
			switch {
			case aData && bData:
				return 0
			case aData:
				return -1
			case bData:
				return 1
			}
			return strings.Compare(a, b)
		})
	}
	return s
}
