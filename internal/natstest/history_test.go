package natstest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	handle := func(h *History, run int, key string, seq, delivered uint64, err error) {
		h.Begin(run, key, seq, delivered)
		h.End(run, key, seq, err)
	}
	all := func(h *History) {
		for seq := range uint64(3) {
			handle(h, 1, "a", seq+1, 1, nil)
		}
	}
	for name, tc := range map[string]struct {
		play func(*History)
		want []string
	}{
		"all is well": {func(h *History) {
			handle(h, 1, "a", 1, 1, nil)
			handle(h, 1, "b", 3, 1, nil)
			handle(h, 2, "a", 2, 1, nil)
		}, nil},
		"lost": {func(h *History) {
			handle(h, 1, "a", 1, 1, nil)
			handle(h, 1, "a", 3, 1, nil)
		}, []string{"1 of 3 messages were not handled"}},
		"failed for good": {func(h *History) {
			handle(h, 1, "a", 1, 1, nil)
			handle(h, 1, "a", 2, 1, nil)
			handle(h, 1, "a", 3, 1, failed)
		}, []string{"1 of 3 messages were not handled"}},
		"again by another, without a fault": {func(h *History) { all(h); handle(h, 2, "a", 2, 2, nil) }, []string{
			"message 2 was handled again by another Consume, though its handler had succeeded, and it was in flight at none (delivery 2, 1 calls and 0 faults between)",
		}},
		"again by another, after a fault": {func(h *History) {
			all(h)
			h.Fault([]uint64{2})
			handle(h, 2, "a", 2, 2, nil)
		}, nil},
		"again by another, after a fault at which others were in flight": {func(h *History) {
			all(h)
			h.Fault([]uint64{1, 3})
			handle(h, 2, "a", 2, 2, nil)
		}, []string{
			"message 2 was handled again by another Consume, though its handler had succeeded, and it was in flight at none (delivery 2, 1 calls and 1 faults between)",
		}},
		"again by another, after a fault before both": {func(h *History) {
			h.Fault([]uint64{2})
			all(h)
			handle(h, 2, "a", 2, 2, nil)
		}, []string{
			"message 2 was handled again by another Consume, though its handler had succeeded, and it was in flight at none (delivery 2, 1 calls and 0 faults between)",
		}},
		"a fault allows it once": {func(h *History) {
			all(h)
			h.Fault([]uint64{2})
			handle(h, 2, "a", 2, 2, nil)
			handle(h, 3, "a", 2, 3, nil)
		}, []string{
			"message 2 was handled again by another Consume, though its handler had succeeded, and it was in flight at none (delivery 3, 0 calls and 0 faults between)",
		}},
		"again by the same, after a fault": {func(h *History) {
			all(h)
			h.Fault([]uint64{2})
			handle(h, 1, "a", 2, 2, nil)
		}, []string{"message 2 was handled again by the same Consume, though its handler had succeeded (delivery 2, 1 calls and 1 faults between)"}},
		"again after it failed": {func(h *History) {
			handle(h, 1, "a", 1, 1, failed)
			handle(h, 1, "a", 1, 2, failed)
			handle(h, 2, "a", 1, 3, nil)
			handle(h, 2, "a", 2, 1, nil)
			handle(h, 2, "a", 3, 1, nil)
		}, nil},
		"again while it was running": {func(h *History) {
			h.Begin(1, "", 1, 1)
			handle(h, 1, "", 1, 2, nil)
			handle(h, 1, "", 2, 1, nil)
			handle(h, 1, "", 3, 1, nil)
		}, []string{"message 1 was handled again by the same Consume, though its handler was running (delivery 2, 0 calls and 0 faults between)"}},
		"again while one that was killed was running": {func(h *History) {
			h.Begin(1, "", 1, 1)
			h.Fault([]uint64{1})
			h.Begin(2, "", 1, 2)
			h.End(1, "", 1, nil)
			h.End(2, "", 1, nil)
			handle(h, 2, "", 2, 1, nil)
			handle(h, 2, "", 3, 1, nil)
		}, nil},
		"out of order": {func(h *History) {
			handle(h, 1, "a", 2, 1, nil)
			handle(h, 1, "a", 1, 1, nil)
			handle(h, 1, "a", 3, 1, nil)
		}, []string{"message 1 of key a was handled after 2"}},
		"delivered again after a fault took it": {func(h *History) {
			handle(h, 1, "a", 2, 1, nil)
			handle(h, 1, "a", 1, 2, nil)
			handle(h, 1, "a", 3, 1, nil)
		}, nil},
		"before one that failed": {func(h *History) {
			handle(h, 1, "a", 1, 1, failed)
			handle(h, 1, "b", 2, 1, nil)
			handle(h, 1, "a", 3, 2, nil)
			handle(h, 1, "a", 1, 2, nil)
		}, []string{"message 3 of key a was started before 1, which had failed, was settled"}},
		"two of a key at a time": {func(h *History) {
			h.Begin(1, "a", 1, 1)
			h.Begin(1, "a", 2, 1)
			h.End(1, "a", 1, nil)
			h.End(1, "a", 2, nil)
			handle(h, 1, "a", 3, 1, nil)
		}, []string{"message 2 of key a was started while 1 was being handled"}},
		"from nowhere": {func(h *History) {
			all(h)
			handle(h, 1, "a", 4, 1, nil)
		}, []string{"1 messages were handled that nobody published"}},
	} {
		h := NewHistory()
		tc.play(h)
		require.Equal(t, tc.want, h.Verdict(3), name)
	}
}
