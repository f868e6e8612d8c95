package sim

import (
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

const (
	// idlePulls is how many pulls in a second need no reason, for each use of
	// the client that goes on: pulls that were refused, and what makes up for
	// them.
	idlePulls = 8
	// pullsPerUse is how many pulls a call may need for each message that it
	// gets, besides one that brings it.
	pullsPerUse = 3
)

// checkRate: in no second were there more pulls than calls, streams, messages
// and pulls that expired explain.
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
		case e.Code == 423 && sent[e.Reply] <= unpinned+a.plan.trip():
			reasons[life] = append(reasons[life], a.since(e.At)) // its id was good when it was sent
		case e.Kind == model.Delivered, e.Kind == model.Unwanted, e.Kind == model.Ended && e.Text == "Request Timeout":
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
	for _, hush := range a.hushes {
		if hush.from <= at && from <= hush.to {
			// All messages that were sent meanwhile arrive at once.
			most *= 3 + int((hush.to-hush.from)/time.Second)
		}
	}
	return most
}
