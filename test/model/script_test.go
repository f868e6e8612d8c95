package model_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/model"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A script is what a client does, one step on a line, in words:
//
//	pub 3 [size]            publish messages, one after the other
//	sub a / unsub a         the inbox a
//	pull a {json}           PIN in it stands for the last pin seen on a,
//	                        SIZE for the size of the last message, as max_bytes
//	                        counts it
//	ack a 0 +ACK            ack the first message that came to a, with any verb
//	confirm a 0 +ACK        the same with a reply, which comes to the inbox "acks"
//	sleep 300ms
//	unpin g
//	update {json}           the consumer's configuration
//	delete                  the consumer
//	restart                 the server
type script struct {
	name  string
	cfg   jetstream.ConsumerConfig
	steps []string
	// draw makes up the next steps from what has happened, until it has none.
	draw func(s *side) []string
}

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
	s := &side{nc: nc, stream: stream, inboxes: map[string]*inbox{}, pinNames: map[string]string{}}
	return s
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

// run does one step. Steps with several parts are cut up before.
func (s *side) run(t *testing.T, step string) {
	t.Helper()
	words := strings.SplitN(step, " ", 5)
	switch words[0] {
	case "pub":
		size, err := strconv.Atoi(words[1])
		require.NoError(t, err)
		s.publish(s.stream+".x", []byte(strings.Repeat("x", size)))
	case "sub":
		s.subscribe(t, words[1])
	case "unsub":
		require.NoError(t, s.inboxes[words[1]].sub.Unsubscribe())
	case "pull":
		body := strings.Join(words[2:], " ")
		body = strings.ReplaceAll(body, "PIN", s.inboxes[words[1]].pin)
		body = strings.ReplaceAll(body, "SIZE", strconv.Itoa(s.inboxes[words[1]].size()))
		require.NoError(t, s.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+s.stream+".C", s.subject(words[1]), []byte(body)))
	case "ack", "confirm":
		s.runAck(t, step, words)
	case "sleep":
		d, err := time.ParseDuration(words[1])
		require.NoError(t, err)
		time.Sleep(d)
	case "unpin":
		s.unpin(words[1])
	case "update":
		changes := []byte(strings.Join(words[1:], " "))
		s.update(func(cfg *jetstream.ConsumerConfig) { require.NoError(t, json.Unmarshal(changes, cfg)) })
	case "delete":
		s.remove()
	case "restart":
		s.restart()
	default:
		t.Fatalf("no such step: %s", step)
	}
}

func (s *side) runAck(t *testing.T, step string, words []string) {
	t.Helper()
	i, err := strconv.Atoi(words[2])
	require.NoError(t, err)
	box := s.inboxes[words[1]]
	require.Less(t, i, len(box.data), "%s: only %d messages have come", step, len(box.data))
	verb, reply := strings.Join(words[3:], " "), ""
	switch words[0] {
	case "confirm":
		reply = s.subject("acks")
	case "ack":
		// These leave no trace but a confirmation by which one could see when
		// the server has taken them.
		if strings.HasPrefix(verb, "-NAK") || strings.HasPrefix(verb, "+WPI") {
			reply = s.subject("acks")
		}
	}
	require.NoError(t, s.nc.PublishMsg(&nats.Msg{Subject: box.data[i].Reply, Reply: reply, Data: []byte(verb)}))
}

// collect takes in what has come.
func (s *side) collect() {
	for _, name := range sortedNames(s.inboxes) {
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
	for _, name := range sortedNames(s.frames) {
		for i, frame := range s.frames[name] {
			text += fmt.Sprintf("%s %d: %s\n", name, i, frame)
		}
	}
	return text
}

// unordered is the snapshot as replicas allow it to differ: messages in their
// order, statuses anywhere between them.
func (s snapshot) unordered() snapshot {
	s.frames = cloneFrames(s.frames)
	for _, frames := range s.frames {
		slices.SortStableFunc(frames, func(a, b string) int {
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

func cloneFrames(frames map[string][]string) map[string][]string {
	copied := map[string][]string{}
	for name, f := range frames {
		copied[name] = slices.Clone(f)
	}
	return copied
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// expand cuts steps into those that are compared one by one.
func expand(t *testing.T, steps []string) []string {
	t.Helper()
	all := []string{"sub acks"}
	for _, step := range steps {
		words := strings.Fields(step)
		if words[0] != "pub" {
			all = append(all, step)
			continue
		}
		n, err := strconv.Atoi(words[1])
		require.NoError(t, err)
		size := "10"
		if len(words) > 2 {
			size = words[2]
		}
		for range n {
			all = append(all, "pub "+size)
		}
	}
	return all
}
