package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/progress"
)

// format is how messages are printed.
type format int

const (
	formatText format = iota
	formatJSON
	formatRaw
)

// printer writes messages, each in one write, so that no two of them mix and
// one that is acknowledged was written before. Its methods may be called from any
// number of goroutines.
type printer struct {
	format format

	mu  sync.Mutex
	out io.Writer
}

func (p *printer) print(m jetstream.Msg) error {
	var b []byte
	var err error
	switch p.format {
	case formatRaw:
		b = append(append(b, m.Data()...), '\n')
	case formatJSON:
		b, err = jsonMessage(m)
	default:
		b, err = textMessage(m)
	}
	if err != nil {
		return err
	}
	return p.write(b)
}

func (p *printer) write(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.out.Write(b); err != nil {
		return &unwritten{fmt.Errorf("write the output: %w", err)}
	}
	return nil
}

// messageJSON is a message as --json prints it. Data holds a payload that is
// text, DataBase64 any other.
type messageJSON struct {
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
	j := messageJSON{
		Stream: meta.Stream, Consumer: meta.Consumer, Domain: meta.Domain, Subject: m.Subject(),
		StreamSeq: meta.Sequence.Stream, ConsumerSeq: meta.Sequence.Consumer,
		Delivered: meta.NumDelivered, Pending: meta.NumPending, Time: meta.Timestamp.UTC(),
		Headers: m.Headers(),
	}
	if utf8.Valid(m.Data()) {
		text := string(m.Data())
		j.Data = &text
	} else {
		text := base64.StdEncoding.EncodeToString(m.Data())
		j.DataBase64 = &text
	}
	var b strings.Builder
	if err := cli.WriteJSON(&b, j); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
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
	for _, name := range client.SortedNames(m.Headers()) {
		for _, value := range m.Headers()[name] {
			b = fmt.Appendf(b, "    %s: %s\n", progress.Readable(name), progress.Readable(value))
		}
	}
	return b, nil
}
