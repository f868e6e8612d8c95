package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// operator is a user who begins each task at the overview. Each click counts, and so does each field that is filled.
type operator struct {
	clicks
	f    *fakes
	used int
}

func (o *operator) press(label string)     { o.used++; o.clicks.press(label) }
func (o *operator) fill(name, text string) { o.used++; o.clicks.fill(name, text) }
func (o *operator) follow(href string)     { o.used++; o.click(fmt.Sprintf("a[href=%q]", href)) }

// nav follows a link of the navigation.
func (o *operator) nav(page string) { o.follow(page) }

// task is what operators do, with the clicks that docs/console.md promises.
type task struct {
	name   string
	clicks int
	do     func(t *testing.T, o *operator)
}

var tasks = []task{
	{"why is it stuck", 0, func(_ *testing.T, o *operator) { o.eventually("No client pulls, and 7 messages wait") }},
	{"pause and resume a consumer", 3, func(t *testing.T, o *operator) {
		o.press("orders/orders")
		o.press("Pause")
		o.eventually("Done. Paused.")
		o.f.called(t, "nats pause orders")
		o.f.nats.set(func() {
			paused := *o.f.nats.consumers[0]
			paused.Paused = true
			o.f.nats.consumers[0] = &paused
		})
		o.press("Resume")
		o.f.called(t, "nats resume orders")
	}},
	{"requeue the dead letters of one reason and time", 5, func(t *testing.T, o *operator) {
		o.nav("deadletters")
		o.follow("deadletters?reason=orders&stream=orders")
		o.fill("span", "the last hour")
		o.until("the time in the address", func(string) bool { return strings.Contains(o.url(), "span=hour") })
		o.press("Requeue all that match…")
		o.press("Requeue all that match")
		o.eventually("Done. Began to requeue matching dead letters: 20 objects.")
		o.f.called(t, "nats publish orders")
	}},
	{"find a message by its id", 3, findBy("id")},
	{"find a message by a header", 3, findBy("header")},
	{"find a message by a text in its payload", 3, findBy("q")},
	{"see the failures of a receiver", 2, func(_ *testing.T, o *operator) {
		o.nav("relay")
		o.follow("failed?receiver=orders3&system=relay")
		o.eventually("1 failure", "Error")
	}},
	{"see what happened to a message", 4, func(_ *testing.T, o *operator) {
		o.nav("relay")
		o.press("all that the relay has")
		o.fill("message", "orders")
		o.press("orders")
		o.eventually("1 attempt", "Arrived")
	}},
	{"find the partition that is behind", 1, func(_ *testing.T, o *operator) {
		o.press("orders")
		o.eventually("no owner")
	}},
	{"cancel an operation", 4, func(t *testing.T, o *operator) {
		o.nav("operations")
		o.follow("operation?id=redrive-1&system=relay")
		o.press("Cancel the operation…")
		o.press("Cancel the operation")
		o.f.called(t, "DELETE /v1/operations/redrive-1")
	}},
	{"see who did what", 1, func(t *testing.T, o *operator) {
		steps[0].act(t, o.clicks, o.f)
		o.nav("log")
		o.eventually("1 action", "anybody", "Pause")
	}},
	{"share a view", 2, func(t *testing.T, o *operator) {
		o.nav("consumers")
		o.fill("q", "orders2")
		o.eventually("1 consumer")
		other := openTab(t, "", wide)
		other.open(o.url())
		other.eventually("1 consumer")
	}},
}

// findBy finds the one message that has a word.
func findBy(field string) func(*testing.T, *operator) {
	return func(_ *testing.T, o *operator) {
		o.f.nats.set(func() {
			one := *o.f.nats.messages[6]
			one.Header, one.Data = nats.Header{"Nats-Msg-Id": {"needle"}, "X-Order": {"needle"}}, []byte("a needle")
			o.f.nats.messages[6] = &one
		})
		o.nav("streams")
		o.follow("messages?stream=orders")
		o.fill(field, "needle")
		o.eventually("1 message shown", "a needle")
	}
}

// Each task of the documentation takes as many clicks as it says.
func TestTasks(t *testing.T) {
	startBrowser(t)
	for _, one := range tasks {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			f := newFakes("orders")
			o := &operator{clicks: clicks{openTab(t, serve(t, f.config()), wide)}, f: f}
			o.open("overview")
			one.do(t, o)
			require.Equal(t, one.clicks, o.used)
		})
	}
}
