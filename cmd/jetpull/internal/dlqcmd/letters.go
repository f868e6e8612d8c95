package dlqcmd

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"time"

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

// head is a dead letter without its headers.
func head(l *letters.Letter) letters.Letter {
	short := *l
	short.Header = nil
	return short
}
