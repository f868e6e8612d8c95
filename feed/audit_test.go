package feed

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAuditFinds: each thing that must not be is found, in a history that is right but for it.
func TestAuditFinds(t *testing.T) {
	at := func(what, owner, item string, gate int, version, epoch int64) event {
		return event{what, owner, "p", item, gate, version, epoch}
	}
	handled := func(owner, item string, gate int, epoch int64) []event {
		return []event{
			at("begin", owner, item, gate, 1, epoch), at("end", owner, item, gate, 1, epoch),
			at("try", owner, item, gate, 1, epoch), at("wrote", owner, item, gate, 1, epoch),
		}
	}
	lease := func(was string, epoch int64) change {
		return change{What: "lease", PartitionID: "p", Was: was, Status: "x", Epoch: epoch}
	}
	complete := func(item string, epoch int64) change {
		return change{What: "item", PartitionID: "p", ID: item, Was: "Available", Status: "Complete", Version: 2, Epoch: epoch}
	}
	gate := change{What: "partition", PartitionID: "p", Gate: 1, Was: "Available", Status: "Available"}
	join := func(lists ...[]event) (all []event) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	good := join(handled("w", "a", 0, 1), handled("w", "b", 1, 1))
	right := []change{lease("", 1), complete("a", 1), gate, complete("b", 1)}
	repeated := join(handled("w", "a", 0, 1)[:3], handled("x", "a", 0, 2), handled("x", "b", 1, 2), []event{at("refused", "w", "a", 0, 1, 1)})
	open := gate
	open.Open = 1
	for name, tt := range map[string]struct {
		log     []event
		changes []change
		want    string
	}{
		"right":                {good, right, ""},
		"a repeat, and right":  {repeated, []change{lease("", 1), lease("w", 2), complete("a", 2), gate, complete("b", 2)}, ""},
		"a repeat of no fault": {repeated, []change{lease("", 1), lease("", 2), complete("a", 2), gate, complete("b", 2)}, "repeats for 0 leases"},
		"a lost owner's write": {repeated, []change{lease("", 1), lease("w", 2), complete("a", 1), gate, complete("b", 2)}, "written by epoch 2 while 1"},
		"nobody's write":       {good[4:], right, "tried by"},
		"two writes": {
			join(handled("w", "a", 0, 1), handled("x", "a", 0, 2)),
			[]change{lease("", 1), lease("w", 2), complete("a", 1)},
			"was written under epoch 1 and 2",
		},
		"two ends":              {good, append(right, complete("a", 1)), "after its end"},
		"a gate over an item":   {good, []change{lease("", 1), complete("a", 1), open, complete("b", 1)}, "1 open"},
		"a handler too early":   {join(good[:1], good[4:], good[1:4]), right, "end of {p a 0 1} for the first time after a handler began at gate 1"},
		"a handler below":       {join(good[4:], good[:4]), right, "begin of {p a 0 1} for the first time"},
		"twice under one lease": {join(good[:1], good), right, "began twice"},
		"more than Concurrency": {join(good[:1], handled("w", "c", 0, 1)[:1], good[1:]), right, "2 in flight"},
		"an epoch is left out":  {good, append(right, lease("", 3)), "epoch 3 after 1"},
	} {
		wrong, _, _ := audit(tt.log, tt.changes, 1)
		if tt.want == "" {
			require.Empty(t, wrong, name)
			continue
		}
		require.Contains(t, strings.Join(wrong, "\n"), tt.want, name)
	}
}
