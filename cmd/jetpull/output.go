package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// warn tells of a problem that does not end the command.
func warn(errOut io.Writer, asJSON bool, text string) {
	if asJSON {
		_ = cli.WriteJSON(errOut, struct {
			Problem string `json:"problem"`
		}{text})
		return
	}
	cli.Tell(errOut, "jetpull: %s\n", text)
}

// warner is warn on errOut.
func (g *globals) warner(errOut io.Writer) func(string) {
	return func(text string) { warn(errOut, g.json, text) }
}

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
	b := fmt.Appendf(nil, "[%d] %s", meta.Sequence.Stream, readable(m.Subject()))
	if meta.NumDelivered > 1 {
		b = fmt.Appendf(b, " (delivery %d)", meta.NumDelivered)
	}
	b = fmt.Appendf(b, ": %s\n", readable(string(m.Data())))
	for _, name := range sortedNames(m.Headers()) {
		for _, value := range m.Headers()[name] {
			b = fmt.Appendf(b, "    %s: %s\n", readable(name), readable(value))
		}
	}
	return b, nil
}

func sortedNames(h nats.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// readable quotes text that a terminal could not show as it is: a payload must
// not be able to move the cursor or to look like another message.
func readable(text string) string {
	for _, r := range text {
		if r == utf8.RuneError || r != '\t' && !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}
