package jetpull

import (
	"context"
	"iter"
)

// Messages yields messages as they come, read ahead by overlapping pulls. The
// loop acknowledges them. A message that the loop has gone past is no longer
// kept alive.
//
// The loop ends quietly when ctx ends, and otherwise with a last pair of nil
// and the error: [ErrClosed], [ErrConsumerDeleted], a [StatusError] that no
// retry can mend, [ErrInvalidOption]. Lost connections, leader changes and
// restarts of the server are waited out. When the loop ends, by break too, the
// messages that it has not got are handed back to the server.
func (s *Subscription) Messages(ctx context.Context, opts ...Option) iter.Seq2[*Msg, error] {
	return func(yield func(*Msg, error) bool) {
		set, err := s.settings(ctx, callMessages, opts)
		if err != nil {
			if ctx == nil || ctx.Err() == nil {
				yield(nil, err)
			}
			return
		}
		defer s.engine.hook(set)()
		st := s.openStream(ctx, set, 1, false)
		stop := context.AfterFunc(ctx, st.halt)
		defer stop()
		if st.each(func(m *Msg) bool { return yield(m, nil) }) {
			if err := st.reason(); err != nil {
				yield(nil, s.callError("messages", err, false))
			}
		}
	}
}

// each calls f for each message until it returns false or the stream ends,
// and reports whether the stream ended.
func (st *stream) each(f func(*Msg) bool) bool {
	defer st.close()
	p := pace{run: 1}
	s := &st.queue.slots[0]
	for {
		h, ok := st.take(s, &p)
		if !ok {
			return true
		}
		switch h.fate {
		case acknowledged:
			st.settledBy(h, h.m.Ack())
			continue
		case terminated:
			st.settledBy(h, h.m.Term())
			continue
		}
		more := f(h.m)
		st.remember(s, h.m, false)
		st.settled(h)
		if !more {
			return false
		}
		st.handled(&p, h)
	}
}

// reason is why the stream ended by itself, or nil.
func (st *stream) reason() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.err
}
