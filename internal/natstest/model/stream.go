package model

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

// duplicateWindow is how long a stream remembers message ids.
const duplicateWindow = 2 * time.Minute

// stream stores messages forever. messages[i] has sequence i+1.
type stream struct {
	name      string
	subjects  []string
	created   time.Time
	messages  []message
	ids       map[string]uint64 // Nats-Msg-Id to sequence
	consumers map[string]*Consumer
	lose      float64 // see LosePublishes
}

// message is one stored message.
type message struct {
	seq     uint64
	subject string
	header  []byte
	body    []byte
	stored  time.Time
}

// AddStream creates a stream. It stores and confirms messages that clients publish to its subjects.
func (m *Model) AddStream(name string, subjects ...string) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[name] != nil {
		m.tb.Fatalf("model: stream %s is there already", name)
	}
	m.streams[name] = &stream{
		name:      name,
		subjects:  subjects,
		created:   time.Now(),
		ids:       map[string]uint64{},
		consumers: map[string]*Consumer{},
	}
	for _, subject := range subjects {
		m.peer.OnRequest(subject, func(_ *natstest.Peer, r natstest.Request) { m.onPublish(name, r) })
	}
}

// LosePublishes leaves a share, from 0 to 1, of the messages that clients publish to a stream unanswered. Half of them are stored.
func (m *Model) LosePublishes(stream string, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[stream].lose = share
}

// Publish stores a message in the stream that has its subject, as if another client had published it, and returns its sequence. It
// returns 0 if the server is down.
func (m *Model) Publish(subject string, header nats.Header, body []byte) uint64 {
	m.tb.Helper()
	var seq uint64
	m.do(func() {
		for _, s := range m.streams {
			for _, pattern := range s.subjects {
				if natstest.SubjectMatches(pattern, subject) {
					if !m.down {
						seq = m.store(s, subject, natstest.EncodeHeader(header), body)
					}
					return
				}
			}
		}
		m.tb.Errorf("model: no stream has the subject %s", subject)
	})
	return seq
}

// Messages returns the number of messages of a stream.
func (m *Model) Messages(stream string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams[stream].messages)
}

// Message returns a stored message.
func (m *Model) Message(stream string, seq uint64) natstest.Data {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	msg := m.streams[stream].messages[seq-1]
	data := natstest.Data{Subject: msg.subject, Body: msg.body}
	if len(msg.header) > 0 {
		header, err := nats.DecodeHeadersMsg(msg.header)
		if err != nil {
			m.tb.Errorf("model: header %q: %v", msg.header, err)
		}
		data.Header = header
	}
	return data
}

// Header returns the first value of a key in the header of a stored message.
func (m *Model) Header(stream string, seq uint64, key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return headerValue(m.streams[stream].messages[seq-1].header, key)
}

func (m *Model) store(s *stream, subject string, header, body []byte) uint64 {
	msg := message{
		seq:     uint64(len(s.messages)) + 1,
		subject: subject,
		header:  header,
		body:    body,
		stored:  time.Now(),
	}
	s.messages = append(s.messages, msg)
	m.note(Event{Kind: Stored, Stream: s.name, Seq: msg.seq, Text: subject})
	for _, c := range m.consumers() {
		if c.stream == s && c.matches(subject) && c.leads() {
			c.npc++
			c.signal()
		}
	}
	return msg.seq
}

// onPublish handles a client's message to the stream.
func (m *Model) onPublish(stream string, r natstest.Request) {
	m.do(func() {
		s := m.streams[stream]
		if m.down {
			if r.Reply != "" {
				m.peer.NoResponders(r.Reply, r.Subject)
			}
			return
		}
		lost := s.lose > 0 && m.rng.Float64() < s.lose
		if lost && m.rng.IntN(2) == 0 {
			return
		}
		id := headerValue(r.Header, jetstream.MsgIDHeader)
		seq, known := s.ids[id]
		if id == "" || !known || time.Since(s.messages[seq-1].stored) > duplicateWindow {
			seq, known = m.store(s, r.Subject, r.Header, r.Body), false
		} else {
			m.note(Event{Kind: Duplicate, Stream: s.name, Seq: seq, Text: r.Subject})
		}
		if id != "" {
			s.ids[id] = seq
		}
		if r.Reply != "" && !lost {
			m.peer.ReplyJSON(r.Reply, jetstream.PubAck{Stream: s.name, Sequence: seq, Duplicate: known})
		}
	})
}

// headerValue returns the first value of a key in a raw header.
func headerValue(header []byte, key string) string {
	for line := range strings.SplitSeq(string(header), "\r\n") {
		name, value, found := strings.Cut(line, ":")
		if found && strings.EqualFold(name, key) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (m *Model) onStreamInfo(_ *natstest.Peer, r natstest.Request) {
	m.do(func() {
		name := r.Subject[strings.LastIndexByte(r.Subject, '.')+1:]
		s := m.streams[name]
		switch {
		case m.down:
			m.peer.NoResponders(r.Reply, r.Subject)
		case s == nil:
			m.peer.ReplyError(r.Reply, 404, jetstream.JSErrCodeStreamNotFound, "stream not found")
		default:
			info := jetstream.StreamInfo{
				Config:    jetstream.StreamConfig{Name: s.name, Subjects: s.subjects, Replicas: m.cfg.Replicas},
				Created:   s.created,
				TimeStamp: time.Now(),
			}
			info.State.Msgs = uint64(len(s.messages))
			info.State.LastSeq = info.State.Msgs
			info.State.FirstSeq = min(1, info.State.Msgs)
			info.State.Consumers = len(s.consumers)
			m.peer.ReplyJSON(r.Reply, info)
		}
	})
}

// onStreamNames responds with the names of the streams that have a subject, or of all streams if the request has no subject.
func (m *Model) onStreamNames(_ *natstest.Peer, r natstest.Request) {
	m.do(func() {
		var req struct {
			Subject string `json:"subject"`
		}
		if err := json.Unmarshal(r.Body, &req); err != nil {
			m.peer.ReplyError(r.Reply, 400, jetstream.JSErrCodeBadRequest, err.Error())
			return
		}
		if m.down {
			m.peer.NoResponders(r.Reply, r.Subject)
			return
		}
		names := []string{}
		for name, s := range m.streams {
			if req.Subject == "" || slices.ContainsFunc(s.subjects, func(p string) bool { return natstest.SubjectMatches(p, req.Subject) }) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		m.peer.ReplyJSON(r.Reply, map[string]any{"total": len(names), "offset": 0, "limit": 1024, "streams": names})
	})
}
