package pulling

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
)

// ErrOutput says that standard output takes no more: a run cannot continue, and a message that was not written is not done.
var ErrOutput = errors.New("write the output")

// Printer writes messages, each in one write, so that no two of them mix and
// one that is acknowledged was written before. Its methods may be called from any
// number of goroutines.
type Printer struct {
	JSON, Raw bool // how; neither: as text

	mu  sync.Mutex
	out io.Writer
}

// NewPrinter returns a Printer on out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Print writes a message.
func (p *Printer) Print(m jetstream.Msg) (err error) {
	var b []byte
	switch {
	case p.JSON:
		b, err = jsonMessage(m)
	case p.Raw:
		b = append(append(b, m.Data()...), '\n')
	default:
		b, err = textMessage(m)
	}
	if err != nil {
		return err
	}
	_, err = p.Write(b)
	return err
}

// Write writes whole lines.
func (p *Printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.out.Write(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return n, err
}

// Message is a message as --json prints it. Data holds a payload that is
// text, DataBase64 any other.
type Message struct {
	Stream      string      `json:"stream"`
	Consumer    string      `json:"consumer"`
	Domain      string      `json:"domain,omitempty"`
	Subject     string      `json:"subject"`
	StreamSeq   uint64      `json:"stream_seq"`
	ConsumerSeq uint64      `json:"consumer_seq"`
	Delivered   uint64      `json:"delivered"`
	Pending     uint64      `json:"pending"`
	Time        time.Time   `json:"time"`
	Headers     nats.Header `json:"headers,omitempty"`
	Data        *string     `json:"data,omitempty"`
	DataBase64  *string     `json:"data_base64,omitempty"`
}

func jsonMessage(m jetstream.Msg) ([]byte, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	j := Message{
		Stream: meta.Stream, Consumer: meta.Consumer, Domain: meta.Domain, Subject: m.Subject(),
		StreamSeq: meta.Sequence.Stream, ConsumerSeq: meta.Sequence.Consumer,
		Delivered: meta.NumDelivered, Pending: meta.NumPending, Time: meta.Timestamp.UTC(),
		Headers: m.Headers(),
	}
	if utf8.Valid(m.Data()) {
		j.Data = new(string(m.Data()))
	} else {
		j.DataBase64 = new(base64.StdEncoding.EncodeToString(m.Data()))
	}
	var b bytes.Buffer
	err = cli.WriteJSON(&b, j)
	return b.Bytes(), err
}

// textMessage is a message for a reader: a line with its sequence, subject and
// payload, and a line for each header.
func textMessage(m jetstream.Msg) ([]byte, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, "[%d] %s", meta.Sequence.Stream, progress.Readable(m.Subject()))
	if meta.NumDelivered > 1 {
		b = fmt.Appendf(b, " (delivery %d)", meta.NumDelivered)
	}
	b = fmt.Appendf(b, ": %s\n", progress.Readable(string(m.Data())))
	for _, name := range slices.Sorted(maps.Keys(m.Headers())) {
		for _, value := range m.Headers()[name] {
			b = fmt.Appendf(b, "    %s: %s\n", progress.Readable(name), progress.Readable(value))
		}
	}
	return b, nil
}
