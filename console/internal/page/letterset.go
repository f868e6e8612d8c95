package page

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go/jetstream"
)

// The kinds of operations on dead letters.
const (
	kindRequeue = "requeue dead letters"
	kindPurge   = "purge dead letters"
)

// addKinds adds the operations on dead letters to the runner.
func (d *DeadLetters) addKinds() {
	d.runner.add(kindRequeue, letterWindow, d.selector(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
		_, err := requeue(ctx, d.source, f.Stream, m, f.Subject)
		return err
	}))
	d.runner.add(kindPurge, letterWindow, d.selector(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
		return d.source.DeleteMessage(ctx, f.Stream, m.Sequence)
	}))
}

// count is how many dead letters match. It stops at maxScanned, with more.
func (d *DeadLetters) count(ctx context.Context, f letterFilter) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	info, err := d.source.Stream(ctx, f.Stream)
	if err != nil {
		return 0, false, err
	}
	for from := max(1, info.State.FirstSeq); from <= f.Last; {
		found, err := d.source.Messages(ctx, info, from, ">", letterWindow)
		if err != nil {
			return n, true, errIfNone(n, err)
		}
		if len(found) == 0 {
			break
		}
		for _, m := range found {
			if m.Sequence <= f.Last && f.fits(m) {
				if n++; n == maxScanned {
					return n, true, nil
				}
			}
		}
		from = found[len(found)-1].Sequence + 1
	}
	return n, false, nil
}

// errIfNone passes on an error that ended a count before it found anything.
func errIfNone(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

// selector selects the dead letters of an operation, and has do done to each.
func (d *DeadLetters) selector(do func(context.Context, letterFilter, *jetstream.RawStreamMsg) error) selector {
	return func(ctx context.Context, selection json.RawMessage, from uint64, limit int) (all []func(context.Context) error, next uint64, err error) {
		var f letterFilter
		if err := json.Unmarshal(selection, &f); err != nil {
			return nil, 0, err
		}
		info, err := d.source.Stream(ctx, f.Stream)
		if err != nil {
			return nil, 0, err
		}
		found, err := d.source.Messages(ctx, info, from, ">", limit)
		if err != nil || len(found) == 0 {
			return nil, 0, err
		}
		for _, m := range found {
			if m.Sequence > f.Last {
				return all, 0, nil
			}
			if f.fits(m) {
				all = append(all, func(ctx context.Context) error { return do(ctx, f, m) })
			}
		}
		return all, found[len(found)-1].Sequence + 1, nil
	}
}
