package state

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
)

// Leaderless reports whether no server leads a stream or a consumer.
func Leaderless(c *jetstream.ClusterInfo) bool { return c != nil && c.Leader == "" }

// maxBehind is the number of operations from which a lagging replica is amber. Under load, replicas are some operations behind.
const maxBehind = 1000

// Replica returns the state of a stream's copy on a server.
func Replica(p *jetstream.PeerInfo) State {
	switch {
	case p.Offline:
		return State{Amber, "offline", "Server " + p.Name + " is offline"}
	case !p.Current && (p.Lag >= maxBehind || p.Active >= Away):
		return State{Amber, "behind", fmt.Sprintf("Server %s is %s behind, and was last seen %s ago", p.Name, view.Count(p.Lag, "operation"),
			view.Span(p.Active))}
	case !p.Current:
		return State{Green, "catching up", ""}
	}
	return State{Green, "current", ""}
}

// Stream returns the state of a stream, which depends on its servers.
func Stream(c *jetstream.ClusterInfo) State {
	switch {
	case Leaderless(c):
		return State{Red, "no leader", "No server leads this stream, so it stores and delivers nothing. Too few of its servers are running."}
	case c == nil || len(c.Replicas) == 0:
		return State{Green, "works", "It is on one server."}
	}
	have, worst := 1+len(c.Replicas), State{}
	for _, p := range c.Replicas {
		if p.Offline {
			have--
		}
		if st := Replica(p); st.Level == Amber && worst.Word != "offline" {
			worst = st
		}
	}
	switch worst.Word {
	case "offline":
		return State{Amber, "replica offline", fmt.Sprintf("%s, so %d of %d servers have the stream.", worst.Sentence, have, 1+len(c.Replicas))}
	case "behind":
		return State{Amber, "replica behind", worst.Sentence + "."}
	}
	return State{Green, "works", fmt.Sprintf("Server %s leads it, with %s.", c.Leader, view.Count(uint64(len(c.Replicas)), "replica"))}
}

// Account is how much an account uses of its limits.
type Account struct {
	Err  error // why that is not known, or nil
	Uses []Use
}

// Use is how much an account uses of one limit.
type Use struct {
	Noun  string
	Used  uint64
	Limit int64 // 0 or less means none
	Bytes bool
}

// Value returns the use, with its limit.
func (u Use) Value() view.Value {
	show := view.Number
	if u.Bytes {
		show = view.Bytes
	}
	v := show(u.Used)
	if u.Limit > 0 {
		v = view.Value{Text: v.Text + " of " + show(uint64(u.Limit)).Text}
	}
	return v
}

// nearLimit is the part of a limit from which a use is amber.
const nearLimit = 0.8

// Of returns the state of the account.
func (a Account) Of() State {
	if a.Err != nil {
		return State{Unknown, "not known", "What the account uses of its limits is not known now: " + a.Err.Error() + "."}
	}
	worst, sentence := 0.0, "The account has no limits."
	for _, u := range a.Uses {
		if u.Limit <= 0 {
			continue
		}
		if worst == 0 {
			sentence = "The account is within its limits."
		}
		of := ""
		if u.Bytes {
			of = "of "
		}
		if part := float64(u.Used) / float64(u.Limit); part >= max(worst, nearLimit) {
			worst, sentence = part, "The account uses "+u.Value().Text+" "+of+u.Noun+"."
		}
	}
	switch {
	case worst >= 1:
		return State{Red, "at a limit", sentence + " The server refuses what needs more."}
	case worst > 0:
		return State{Amber, "near a limit", sentence}
	}
	return State{Green, "within limits", sentence}
}
