package natstest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxControlLine is the maximum length of a line. The longest line of a client is CONNECT with a signed user.
const maxControlLine = 64 << 10

// Op is one protocol operation that a client sent.
type Op struct {
	// Conn counts the connections of the peer from 1.
	Conn int
	// At is when the operation was complete.
	At time.Time
	// Verb is PUB, HPUB, SUB, UNSUB, PING, PONG or CONNECT.
	Verb string
	// Subject of PUB, HPUB and SUB.
	Subject string
	// Reply of PUB and HPUB.
	Reply string
	// Queue group of SUB.
	Queue string
	// SID of SUB and UNSUB.
	SID string
	// Max of UNSUB, or 0.
	Max int
	// Header is the header block of HPUB as sent, with its version line.
	Header []byte
	// Body of PUB and HPUB, or the JSON of CONNECT.
	Body []byte
}

// String returns the operation on one line, for test output.
func (op Op) String() string {
	text := fmt.Sprintf("[%d] %s", op.Conn, op.Verb)
	for _, part := range []string{op.Subject, op.Reply, op.Queue, op.SID} {
		if part != "" {
			text += " " + part
		}
	}
	if op.Max > 0 {
		text += fmt.Sprintf(" max %d", op.Max)
	}
	if len(op.Body) > 0 {
		text += fmt.Sprintf(" %q", op.Body)
	}
	return text
}

// opParser splits a client's byte stream into operations. The stream may be fed in pieces of any size. The zero value with emit is ready.
type opParser struct {
	emit func(Op)

	line    []byte // the control line so far, if it came in pieces
	op      Op
	missing int // remaining bytes of the payload and its line end
	header  int // size of the header in the payload, in bytes
	payload []byte
}

// feed parses the next bytes. After an error, the parser must not be used.
func (p *opParser) feed(b []byte) error {
	for len(b) > 0 {
		if p.missing > 0 {
			b = p.takePayload(b)
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			p.line = append(p.line, b...)
			if len(p.line) > maxControlLine {
				return fmt.Errorf("natstest: control line over %d bytes: %.40q…", maxControlLine, p.line)
			}
			return nil
		}
		line := b[:end]
		if len(p.line) > 0 {
			p.line = append(p.line, line...)
			line = p.line
		}
		b = b[end+1:]
		if err := p.control(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
			return err
		}
		p.line = p.line[:0]
	}
	return nil
}

// takePayload consumes the part of b that belongs to the payload, and returns the rest.
func (p *opParser) takePayload(b []byte) []byte {
	n := min(len(b), p.missing)
	p.missing -= n
	p.payload = append(p.payload, b[:n]...)
	if p.missing == 0 {
		body := p.payload[:len(p.payload)-len("\r\n")]
		p.op.Header, p.op.Body = body[:p.header:p.header], body[p.header:]
		p.finish()
	}
	return b[n:]
}

func (p *opParser) finish() {
	p.op.At = time.Now()
	p.emit(p.op)
	p.op, p.payload = Op{}, nil
}

// control parses a control line. If a payload follows, it sets its length.
func (p *opParser) control(line []byte) error {
	verb, args, _ := strings.Cut(string(line), " ")
	verb = strings.ToUpper(verb)
	fields := strings.Fields(args)
	p.header = 0
	op := Op{Verb: verb}
	var err error
	switch verb {
	case "":
		return nil // an empty line is not an operation
	case "CONNECT":
		op.Body = []byte(args)
	case "PING", "PONG":
	case "SUB":
		err = op.parseSub(fields)
	case "UNSUB":
		err = op.parseUnsub(fields)
	case "PUB", "HPUB":
		err = p.parsePub(&op, fields)
	default:
		err = errors.New("unknown verb")
	}
	if err != nil {
		return fmt.Errorf("natstest: client sent %.80q: %w", line, err)
	}
	p.op = op
	if p.missing == 0 {
		p.finish()
	}
	return nil
}

func (op *Op) parseSub(fields []string) error {
	switch len(fields) {
	case 2:
		op.Subject, op.SID = fields[0], fields[1]
	case 3:
		op.Subject, op.Queue, op.SID = fields[0], fields[1], fields[2]
	default:
		return fmt.Errorf("SUB with %d arguments, want 2 or 3", len(fields))
	}
	return nil
}

func (op *Op) parseUnsub(fields []string) error {
	switch len(fields) {
	case 1:
		op.SID = fields[0]
		return nil
	case 2:
		op.SID = fields[0]
		limit, err := strconv.Atoi(fields[1])
		op.Max = limit
		return err
	}
	return fmt.Errorf("UNSUB with %d arguments, want 1 or 2", len(fields))
}

func (p *opParser) parsePub(op *Op, fields []string) error {
	sizes := 1
	if op.Verb == "HPUB" {
		sizes = 2
	}
	switch len(fields) - sizes {
	case 1:
		op.Subject = fields[0]
	case 2:
		op.Subject, op.Reply = fields[0], fields[1]
	default:
		return fmt.Errorf("%s with %d arguments", op.Verb, len(fields))
	}
	total, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return err
	}
	header := 0
	if sizes == 2 {
		if header, err = strconv.Atoi(fields[len(fields)-2]); err != nil {
			return err
		}
	}
	if header < 0 || total < header {
		return fmt.Errorf("payload of %d bytes with a header of %d", total, header)
	}
	p.header, p.missing = header, total+len("\r\n")
	return nil
}

// SubjectMatches reports whether a subject without wildcards matches a pattern that may contain * and >.
func SubjectMatches(pattern, subject string) bool {
	for {
		want, morePattern, patternGoesOn := strings.Cut(pattern, ".")
		have, moreSubject, subjectGoesOn := strings.Cut(subject, ".")
		switch {
		case want == ">" && !patternGoesOn:
			return true
		case want != "*" && want != have:
			return false
		case patternGoesOn != subjectGoesOn:
			// "a.>" needs at least one token after "a".
			return false
		case !patternGoesOn:
			return true
		}
		pattern, subject = morePattern, moreSubject
	}
}
