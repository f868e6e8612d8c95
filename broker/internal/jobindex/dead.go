package jobindex

import (
	"cmp"
	"math"
	"slices"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Dead returns up to limit dead jobs of the consumers that take accepts, ordered by the time at which they became dead, from a time on and
// before another one. There are more than limit if the last ones became dead in the same nanosecond, so that a caller can continue by
// last, the time of the last one. It is 0 if there are no others.
func (x *Index) Dead(take func(domain.Consumer) bool, from, to int64, newest bool, limit int) (jobs []domain.Job, last int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	type dead struct {
		key
		of *consumerIndex
	}
	var found []dead
	more := false
	// trim keeps the first ones, and excludes those behind them.
	trim := func() {
		slices.SortFunc(found, func(a, b dead) int {
			if newest {
				a, b = b, a
			}
			return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.seq, b.seq), cmp.Compare(a.of.consumer.Number, b.of.consumer.Number))
		})
		n := min(limit, len(found))
		for n > 0 && n < len(found) && found[n].major == found[n-1].major {
			n++
		}
		if n == len(found) {
			return
		}
		found, more = found[:n], true
		if newest {
			from = found[n-1].major
		} else {
			to = found[n-1].major + 1
		}
	}
	full := 2 * limit
	for _, k := range x.consumers {
		if !take(k.consumer) {
			continue
		}
		collect := func(e key) bool {
			if e.major < from || e.major >= to {
				return false
			}
			if found = append(found, dead{e, k}); len(found) > full {
				trim()
				full = max(full, 2*len(found))
			}
			return true
		}
		if newest {
			k.settled.dead.descend(&key{to, 0}, collect)
		} else {
			k.settled.dead.ascend(&key{from - 1, math.MaxUint64}, collect)
		}
	}
	trim()
	if more {
		last = found[len(found)-1].major
	}
	for _, d := range found {
		if j, ok := d.of.job(d.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs, last
}
