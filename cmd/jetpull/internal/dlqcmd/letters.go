package dlqcmd

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/letters"
	"github.com/jetpull/jetpull/internal/wire"
)

// filter says which dead letters are meant: those that all of its fields fit.
type filter struct {
	sequences []uint64       // empty: all
	reason    *regexp.Regexp // nil: any
	subject   string         // that the message was published to, wildcards allowed; empty: any
	since     time.Time      // when the dead letter was stored; zero: ever
}

func (f *filter) fits(l *letters.Letter) bool {
	return (len(f.sequences) == 0 || slices.Contains(f.sequences, l.Sequence)) && (f.reason == nil || f.reason.MatchString(l.Reason)) &&
		(f.subject == "" || wire.Matches(f.subject, l.Subject)) && !l.Time.Before(f.since)
}

// letters are the dead letters that are chosen. Without payloads, they are read without.
func (d *dlq) letters(ctx context.Context, payloads bool) iter.Seq2[*letters.Letter, error] {
	return func(yield func(*letters.Letter, error) bool) {
		for l, err := range letters.Read(ctx, d.link.JS, d.stream, payloads) {
			if (err != nil || d.chosen.fits(l)) && !yield(l, err) {
				return
			}
		}
	}
}

// letter is a dead letter as it is printed.
type letter struct {
	Sequence uint64      `json:"seq"`
	Time     time.Time   `json:"time"`
	Subject  string      `json:"subject"`
	Stream   string      `json:"stream,omitempty"`
	Origin   uint64      `json:"stream_seq"`
	Consumer string      `json:"consumer,omitempty"`
	Attempts int         `json:"attempts"`
	Reason   string      `json:"reason,omitempty"`
	Gone     bool        `json:"payload_gone,omitempty"`
	Size     int         `json:"size"`
	Headers  nats.Header `json:"headers,omitempty"`
	cli.Payload
}

// head is a letter without its headers and its payload.
func head(l *letters.Letter) letter {
	return letter{
		Sequence: l.Sequence, Time: l.Time, Subject: l.Subject, Stream: l.Stream, Origin: l.Origin, Consumer: l.Consumer, Attempts: l.Attempts,
		Reason: l.Reason, Gone: l.Gone, Size: l.Size,
	}
}
