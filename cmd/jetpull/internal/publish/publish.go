// Package publish publishes messages that are made from a template.
package publish

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ahead is how many messages may wait for the stream's confirmation.
const ahead = 256

// Plan says what to publish.
type Plan struct {
	Subject, Body text
	Header        nats.Header
	Count         int
	Size          int // bytes of each payload, which is filled up with spaces; 0: as large as the body
}

// text is written anew for each message.
type text interface {
	Execute(out io.Writer, with any) error
}

// Verbatim is a text that is the same for each message.
type Verbatim []byte

// Execute writes the text.
func (v Verbatim) Execute(out io.Writer, _ any) error {
	_, err := out.Write(v)
	return err
}

// Template reads a template, and tries it: a wrong one is found before anything is made.
func Template(name, content string) (*template.Template, error) {
	t, err := template.New(name).Parse(content)
	if err == nil {
		err = t.Execute(io.Discard, fields{Count: 1})
	}
	if err != nil {
		return nil, fmt.Errorf("%w; SUBJECT and BODY are templates: {{.Count}}, {{.Time}}, {{.UnixNano}}, {{.Random N}}", err)
	}
	return t, nil
}

// fields are what a template can use.
type fields struct {
	Count    int // of the message, from 1
	Time     string
	UnixNano int64
}

// Random is a text of n letters.
func (fields) Random(n int) (string, error) {
	const most = 1 << 20
	if n < 0 || n > most {
		return "", fmt.Errorf("Random %d is not in 0..%d letters", n, most)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(rand.IntN(26))
	}
	return string(b), nil
}

// Publish publishes all messages, and returns how many a stream has confirmed. done is called for each.
func (p *Plan) Publish(ctx context.Context, js jetstream.JetStream, done func()) (confirmed int, err error) {
	var waiting []jetstream.PubAckFuture
	confirm := func() error {
		select {
		case <-waiting[0].Ok():
		case err := <-waiting[0].Err():
			return fmt.Errorf("publish to %s: %w", waiting[0].Msg().Subject, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		waiting = waiting[1:]
		confirmed++
		done()
		return nil
	}
	for i := range p.Count {
		m, err := p.message(i + 1)
		if err != nil {
			return confirmed, err
		}
		f, err := js.PublishMsgAsync(m)
		if err != nil {
			return confirmed, fmt.Errorf("publish to %s: %w", m.Subject, err)
		}
		if waiting = append(waiting, f); len(waiting) == ahead {
			if err := confirm(); err != nil {
				return confirmed, err
			}
		}
	}
	for len(waiting) > 0 {
		if err := confirm(); err != nil {
			return confirmed, err
		}
	}
	return confirmed, nil
}

func (p *Plan) message(n int) (*nats.Msg, error) {
	now := time.Now()
	with := fields{Count: n, Time: now.Format(time.RFC3339Nano), UnixNano: now.UnixNano()}
	var s strings.Builder
	var b bytes.Buffer
	if err := p.Subject.Execute(&s, with); err != nil {
		return nil, err
	}
	if err := p.Body.Execute(&b, with); err != nil {
		return nil, err
	}
	if fill := p.Size - b.Len(); fill > 0 {
		b.Write(bytes.Repeat([]byte{' '}, fill))
	}
	return &nats.Msg{Subject: s.String(), Header: p.Header, Data: b.Bytes()}, nil
}
