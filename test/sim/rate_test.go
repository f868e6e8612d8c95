package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// checkStats: the client's own counters agree with what it was sent.
func (a *audit) checkStats() {
	sent := map[string]map[int]uint64{}
	const data = 0
	add := func(reply string, code int) {
		life := lifeOf(reply)
		if sent[life] == nil {
			sent[life] = map[int]uint64{}
		}
		sent[life][code]++
	}
	for _, e := range a.history {
		switch {
		case e.Kind == model.Delivered:
			add(e.Reply, data)
		case e.Kind == model.Ended:
			add(e.Reply, e.Code)
		case e.Kind == model.Unanswered && e.Seq == 0:
			add(e.Reply, 503)
		}
	}
	for life, end := range a.lives {
		if end.stats.Outstanding != 0 {
			a.wrong("%s: %d messages are outstanding after Close", life, end.stats.Outstanding)
		}
		if end.stats.Messages > sent[life][data] {
			a.wrong("%s: counts %d messages of %d", life, end.stats.Messages, sent[life][data])
		}
		for code, n := range end.stats.Statuses {
			if n > sent[life][code] {
				a.wrong("%s: counts %d statuses %d of %d", life, n, code, sent[life][code])
			}
		}
	}
}

const (
	// idlePulls is how many pulls in a second need no reason, for each use of the client that goes on: pulls that were refused, and what makes up
	// for them.
	idlePulls = 8
	// pullsPerUse is how many pulls a call may need for each message that it gets, besides one that brings it.
	pullsPerUse = 3
)

// checkRate: in no second were there more pulls than calls, streams, messages and pulls that expired explain.
func (a *audit) checkRate() {
	pulls, reasons := map[string][]time.Duration{}, map[string][]time.Duration{}
	sent, unpinned := map[string]time.Duration{}, time.Duration(0)
	filled := map[string]time.Duration{} // when a pull ended whose messages had yet to come
	for _, e := range a.history {
		life := lifeOf(e.Reply)
		if e.Kind == model.Ended && e.Text == "Batch Completed" {
			filled[e.Reply] = a.since(e.At)
		}
		came := e.Kind == model.Delivered || e.Kind == model.Lost || e.Kind == model.Unwanted
		if at, overtaken := filled[e.Reply]; overtaken && came {
			reasons[life] = append(reasons[life], at)
		}
		switch {
		case isPull(e):
			pulls[life] = append(pulls[life], a.since(e.At))
			sent[e.Reply] = a.since(e.At)
		case e.Kind == model.Unpinned, e.Kind == model.LeaderLost:
			unpinned = a.since(e.At)
		case e.Code == 423 && sent[e.Reply] <= unpinned+a.plan.trip(), // its id was good when it was sent
			e.Kind == model.Delivered, e.Kind == model.Unwanted, e.Kind == model.Ended && e.Text == "Request Timeout":
			reasons[life] = append(reasons[life], a.since(e.At))
		}
	}
	for life, ats := range pulls {
		first := 0
		for i, at := range ats {
			for ats[first] <= at-time.Second {
				first++
			}
			if n, most := i-first+1, a.mostPulls(life, reasons[life], at); n > most {
				a.wrong("%s: %d pulls in the second before %v, which is more than %d", life, n, at, most)
				break
			}
		}
	}
}

// windowPulls is how many pulls a stream's window may take: the server bounds what each brings, and the client keeps
// no more open than a quarter of what the server queues.
func (a *audit) windowPulls() int {
	const window, open = 1792, 512 / 4
	most := 1
	for _, c := range a.plan.all() {
		if c.MaxRequestBatch > 0 {
			most = max(most, min(open, window/c.MaxRequestBatch))
		}
	}
	return most
}

// mostPulls is how many pulls a life may have sent in the second before a time.
func (a *audit) mostPulls(life string, ends []time.Duration, at time.Duration) int {
	from := at - time.Second - a.plan.trip()
	most := idlePulls
	for _, m := range ends {
		if m >= from-time.Second && m <= at {
			most += pullsPerUse
		}
	}
	for _, c := range a.calls {
		if strings.HasPrefix(life, "P") && c.from <= at && c.to >= from {
			most += pullsPerUse
		}
	}
	for _, r := range a.runs {
		if r.life == life && r.from <= at && (!r.over || r.end >= from) {
			most += idlePulls + a.windowPulls()
		}
	}
	for _, hush := range slices.Concat(a.hushes, a.plan.stalls) {
		if hush.from <= at && from <= hush.to {
			// All messages that were sent meanwhile arrive at once.
			most *= 3 + int((hush.to-hush.from)/time.Second)
		}
	}
	return most
}

// limitsRead is how long a client goes on by the limits that it knew after a pull was refused by lower ones: the
// answer to its reading, and a reading from before that is under way.
const limitsRead = 2 * time.Second

// checkRefusals: a call is refused by a limit of the consumer only if it asked for more itself, or shared the pull of
// one that did by a limit that was lowered and that the client had no time to read since it was first refused.
func (a *audit) checkRefusals() {
	for _, r := range a.refusals {
		if !a.asksForMore(r) && !a.lowered(r) {
			a.wrong("%s: %s for %d within %v ended at %v by a limit of the consumer", r.life, r.what, r.call.batch, r.call.wait, r.at)
		}
	}
}

// asksForMore reports whether the call asked for more than the consumer allowed while it ran.
func (a *audit) asksForMore(r refusal) bool {
	return slices.ContainsFunc(a.configs(r.at-r.call.wait-a.plan.trip(), r.at), func(c jetstream.ConsumerConfig) bool {
		return c.MaxRequestBatch > 0 && r.call.batch > c.MaxRequestBatch || c.MaxRequestExpires > 0 && r.call.wait > c.MaxRequestExpires
	})
}

// lowered reports whether a limit was lowered since the client has read the consumer, and it was first refused not so
// long before this that it had to know.
func (a *audit) lowered(r refusal) bool {
	end := a.lives[r.life]
	if end == nil {
		return false
	}
	slack := a.plan.trip()
	bound := end.bound - slack
	known := a.configs(bound, bound)[0]
	for _, c := range a.changes {
		if c.at > r.at {
			break
		}
		if c.at < bound {
			continue
		}
		first := slices.IndexFunc(a.refusals, func(o refusal) bool { return o.life == r.life && o.at >= c.at })
		begin := a.refusals[first].at
		lower := tighter(c.MaxRequestBatch, known.MaxRequestBatch) || tighter(c.MaxRequestExpires, known.MaxRequestExpires)
		if lower && (r.at <= begin+limitsRead+4*slack || a.excused(begin, r.at)) {
			return true
		}
		known = c.ConsumerConfig
	}
	return false
}

// tighter reports whether a limit is lower than another; 0 is none.
func tighter[T int | time.Duration](limit, than T) bool {
	return limit > 0 && (than == 0 || limit < than)
}
