package jetpull

import (
	"context"
	"strconv"
	"time"
)

// The function of OrderedBy is the user's, and runs where the messages of all calls
// arrive: a panic there would leave the engine's locks as they are. So it is recovered,
// and the message goes to a worker, which settles it as one whose handler failed.

// keyOf is the key of a message, or why it has none.
type keyOf struct {
	key  string
	flaw *panicError
}

// keysOf calls the key function for each message; nil: there is none.
func (d *dispatch) keysOf(ms []*Msg) []keyOf {
	if d.key == nil {
		return nil
	}
	keys := make([]keyOf, len(ms))
	for i, m := range ms {
		keys[i] = d.keyOf(m)
	}
	return keys
}

// keyOf gives a message without a key a line of its own, where it holds up no other.
func (d *dispatch) keyOf(m *Msg) (k keyOf) {
	defer func() {
		if v := recover(); v != nil {
			k = keyOf{"\x00keyless." + strconv.FormatUint(m.Sequence(), 10), recovered("the OrderedBy function", v)}
		}
	}()
	return keyOf{key: d.key(m)}
}

// keylessAgain is after which time a message at the least comes again for which the
// key function panicked. Nothing slows that down, as it may a handler.
const keylessAgain = time.Second

// keyless settles the message of s, for which the key function panicked.
func (st *stream) keyless(ctx context.Context, s *slot, h held) {
	st.log.Error("jetpull: OrderedBy gave no key, and no handler gets the message", "error", h.flaw, "sequence", h.m.Sequence())
	st.conclude(ctx, h, h.flaw)
	st.remember(s, h.m, false)
}
