// Package backup copies the streams of a broker's embedded server while it runs, and restores them to a new server.
//
// A copy of a stream is a file. Its first line is JSON that describes the stream. The server's own snapshot follows in pieces, each prefixed by its
// length in four bytes. A length of 0 ends the file; without it, the file is incomplete. The streams are copied one after the other, in the order of
// [Streams], so that each copy has everything to which earlier copies refer.
package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Format is the version of a copy. A broker restores copies of this and older versions.
	Format = 1
	// stall is how long a copy waits for the next piece.
	stall     = 30 * time.Second
	maxPiece  = 1 << 20
	maxHeader = 1 << 20
)

// header is the first line of a copy.
type header struct {
	Format int
	Config json.RawMessage
	State  json.RawMessage
}

// Streams returns the names of a broker's streams in the order in which to copy them: attempts and records, then the registry, then the messages. In
// another order, a restored record could lack its message. The next message with that sequence would inherit the record. The same applies to the
// numbers of consumers.
func Streams(name string) []string {
	return []string{name + "_attempts", name + "_jobs", "KV_" + name + "_registry", name + "_messages"}
}

// Write writes a copy of a stream to to. The stream may be in use meanwhile.
func Write(ctx context.Context, nc *nats.Conn, stream string, to io.Writer) error {
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	request, err := json.Marshal(map[string]any{"deliver_subject": inbox, "no_consumers": true})
	if err != nil {
		return err
	}
	var answer struct{ Config, State json.RawMessage }
	if err := ask(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+stream, request, &answer); err != nil {
		return fmt.Errorf("copy stream %s: %w", stream, err)
	}
	first, err := json.Marshal(header{Format, answer.Config, answer.State})
	if err != nil {
		return err
	}
	if _, err := to.Write(append(first, '\n')); err != nil {
		return err
	}
	for {
		piece, done := context.WithTimeout(ctx, stall)
		msg, err := sub.NextMsgWithContext(piece)
		done()
		if err != nil {
			return fmt.Errorf("copy stream %s: no piece came within %s: %w", stream, stall, err)
		}
		if status := msg.Header.Get("Status"); len(msg.Data) == 0 && status != "" && status != "204" {
			return fmt.Errorf("copy stream %s: the server gave up: %s %s", stream, status, msg.Header.Get("Description"))
		}
		if _, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(msg.Data))), msg.Data...)); err != nil {
			return err
		}
		if len(msg.Data) == 0 {
			return nil
		}
		if msg.Reply != "" {
			if err := nc.Publish(msg.Reply, nil); err != nil {
				return err
			}
		}
	}
}

// ask makes a request and decodes the answer. The server accepts a piece of a stream with an empty message.
func ask(ctx context.Context, nc *nats.Conn, subject string, request []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, stall)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, subject, request)
	if err != nil {
		return err
	}
	data := bytes.TrimSpace(msg.Data)
	if len(data) == 0 {
		data = []byte("{}")
	}
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(data, &failed), json.Unmarshal(data, answer)); err != nil {
		return fmt.Errorf("the server answered %q: %w", msg.Data, err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return nil
}

// ErrTruncated reports that a copy is incomplete, because it has no end mark.
var ErrTruncated = errors.New("the copy is incomplete")

// Check reads a copy to its end. It returns [ErrTruncated] if the end mark is missing, and another error if the [Format] is newer.
func Check(from io.Reader) error {
	_, pieces, err := open(from)
	if err != nil {
		return err
	}
	return each(pieces, func([]byte) error { return nil })
}

func open(from io.Reader) (header, *bufio.Reader, error) {
	var h header
	pieces := bufio.NewReaderSize(io.LimitReader(from, 1<<62), maxHeader)
	line, err := pieces.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err != nil {
		return h, nil, fmt.Errorf("%w: its first line: %w", ErrTruncated, err)
	}
	if h.Format < 1 || h.Format > Format {
		return h, nil, fmt.Errorf("the copy has format %d, and this program knows those up to %d: use a later one", h.Format, Format)
	}
	return h, pieces, nil
}

func each(pieces io.Reader, do func([]byte) error) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(pieces, size[:]); err != nil {
			return fmt.Errorf("%w: %w", ErrTruncated, err)
		}
		n := binary.BigEndian.Uint32(size[:])
		switch {
		case n == 0:
			return nil
		case n > maxPiece:
			return fmt.Errorf("%w: a piece of %d bytes", ErrTruncated, n)
		}
		piece := make([]byte, n)
		if _, err := io.ReadFull(pieces, piece); err != nil {
			return fmt.Errorf("%w: %w", ErrTruncated, err)
		}
		if err := do(piece); err != nil {
			return err
		}
	}
}

// Read creates a stream from its copy. It returns an error if the server already has a stream with that name.
func Read(ctx context.Context, nc *nats.Conn, stream string, from io.Reader) error {
	h, pieces, err := open(from)
	if err != nil {
		return err
	}
	request, err := json.Marshal(map[string]json.RawMessage{"config": h.Config, "state": h.State})
	if err != nil {
		return err
	}
	var answer struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	if err := ask(ctx, nc, "$JS.API.STREAM.RESTORE."+stream, request, &answer); err != nil {
		return fmt.Errorf("restore stream %s: %w", stream, err)
	}
	send := func(piece []byte) error {
		if err := ask(ctx, nc, answer.DeliverSubject, piece, &struct{}{}); err != nil {
			return fmt.Errorf("restore stream %s: %w", stream, err)
		}
		return nil
	}
	if err := each(pieces, send); err != nil {
		return err
	}
	return send(nil)
}
