package feedcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/feed"
)

// limits are those of the flag --limit.
type limits []feed.Limit

// add reads a value of the flag, which may be given for each gate: GATE=CONCURRENCY, GATE=RATE/PER, or both with a comma between. It refuses
// all that a watcher would refuse.
func (l *limits) add(text string) error {
	gate, rest, found := strings.Cut(text, "=")
	n, err := strconv.Atoi(gate)
	limit := feed.Limit{Gate: n}
	if err != nil || !found {
		return fmt.Errorf("%q does not begin with a gate's number and =; give one such as 2=10,100/1s", text)
	}
	if slices.ContainsFunc(*l, func(given feed.Limit) bool { return given.Gate == n }) {
		return fmt.Errorf("gate %d is given twice; give one limit for a gate, such as %d=10,100/1s", n, n)
	}
	for part := range strings.SplitSeq(rest, ",") {
		number, per, isRate := strings.Cut(part, "/")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || (isRate && limit.Rate > 0) || (!isRate && limit.Concurrency > 0) {
			return fmt.Errorf("%q: %q is not one number of items from 1 on, or one rate such as 100/1s", text, part)
		}
		if !isRate {
			limit.Concurrency = n
			continue
		}
		limit.Rate = n
		if limit.Per, err = time.ParseDuration(per); err != nil {
			return fmt.Errorf("%q: %q is not a duration such as 1s, 90s or 1h", text, per)
		}
		if limit.Per < time.Second || limit.Per > 24*time.Hour {
			return fmt.Errorf("%q: %v is not in 1s..24h", text, limit.Per)
		}
	}
	*l = append(*l, limit)
	return nil
}
