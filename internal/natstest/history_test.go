package natstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	handle := func(h *History, key string, seq, delivered uint64, err error) {
		h.Begin(key, seq, delivered)
		h.End(key, seq, err)
	}
	all := func(h *History) {
		for seq := range uint64(3) {
			handle(h, "a", seq+1, 1, nil)
		}
	}
	for name, tc := range map[string]struct {
		play func(*History)
		want []string
	}{
		"all is well": {func(h *History) {
			handle(h, "a", 1, 1, nil)
			handle(h, "b", 3, 1, nil)
			handle(h, "a", 2, 1, nil)
		}, nil},
		"lost": {func(h *History) {
			handle(h, "a", 1, 1, nil)
			handle(h, "a", 3, 1, nil)
		}, []string{"1 of 3 messages were not handled"}},
		"failed for good": {func(h *History) {
			handle(h, "a", 1, 1, nil)
			handle(h, "a", 2, 1, nil)
			handle(h, "a", 3, 1, failed)
		}, []string{"1 of 3 messages were not handled"}},
		"again": {func(h *History) { all(h); handle(h, "a", 2, 2, nil) }, []string{
			"message 2 was handled again, though its handler had succeeded (delivery 2, 1 calls between)",
		}},
		"again after it failed": {func(h *History) {
			handle(h, "a", 1, 1, failed)
			handle(h, "a", 1, 2, failed)
			handle(h, "a", 1, 3, nil)
			handle(h, "a", 2, 1, nil)
			handle(h, "a", 3, 1, nil)
		}, nil},
		"again while it was running": {func(h *History) {
			h.Begin("", 1, 1)
			handle(h, "", 1, 2, nil)
			handle(h, "", 2, 1, nil)
			handle(h, "", 3, 1, nil)
		}, []string{"message 1 was handled again, though its handler was running (delivery 2, 0 calls between)"}},
		"out of order": {func(h *History) {
			handle(h, "a", 2, 1, nil)
			handle(h, "a", 1, 1, nil)
			handle(h, "a", 3, 1, nil)
		}, []string{"message 1 of key a was handled after 2"}},
		"delivered again after a fault took it": {func(h *History) {
			handle(h, "a", 2, 1, nil)
			handle(h, "a", 1, 2, nil)
			handle(h, "a", 3, 1, nil)
		}, nil},
		"before one that failed": {func(h *History) {
			handle(h, "a", 1, 1, failed)
			handle(h, "b", 2, 1, nil)
			handle(h, "a", 3, 2, nil)
			handle(h, "a", 1, 2, nil)
		}, []string{"message 3 of key a was started before 1, which had failed, was settled"}},
		"two of a key at a time": {func(h *History) {
			h.Begin("a", 1, 1)
			h.Begin("a", 2, 1)
			h.End("a", 1, nil)
			h.End("a", 2, nil)
			handle(h, "a", 3, 1, nil)
		}, []string{"message 2 of key a was started while 1 was being handled"}},
		"from nowhere": {func(h *History) {
			all(h)
			handle(h, "a", 4, 1, nil)
		}, []string{"1 messages were handled that nobody published"}},
	} {
		h := NewHistory()
		tc.play(h)
		require.Equal(t, tc.want, h.Verdict(3), name)
	}
}
