package relayhistory

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Check finds a violation of each rule, and none in a correct run.
func TestCheck(t *testing.T) {
	begin := time.Now()
	at := begin.Add
	good := func() *Run {
		return &Run{
			Receivers: map[string]Receiver{"r": {
				Traits: Traits{Asked: true, Order: "source", Limit: 1, Window: time.Second, MaxRetries: 1},
				Posts:  []Post{{"s/1", 1, at(0), false, false}, {"s/1", 2, at(time.Second), true, false}, {"s/2", 1, at(2 * time.Second), true, false}},
			}},
			Offered: map[string]string{"s/1": "r", "s/2": "r", "s/3": "r"}, Accepted: map[string]bool{"s/1": true, "s/2": true},
			Order: map[string][]string{"s": {"s/1", "s/2"}}, Latest: map[string]time.Time{"s/2": at(2 * time.Second)},
			Ends:     map[string]End{"s/1": {"DONE", "", "s/1"}, "s/2": {"DONE", "", "s/2"}},
			Reported: map[string][]string{"s/1": {"DONE"}, "s/2": {"DONE"}},
		}
	}
	tally, wrongs := good().Check()
	require.Empty(t, wrongs)
	require.Zero(t, tally)
	post := func(p Post) func(*Run) {
		return func(r *Run) {
			receiver := r.Receivers["r"]
			receiver.Posts = append(receiver.Posts, p)
			r.Receivers["r"] = receiver
		}
	}
	for want, spoil := range map[string]func(*Run){
		"s/2 was accepted and is not known":                    func(r *Run) { delete(r.Ends, "s/2"); delete(r.Reported, "s/2") },
		"s/3 was sent and is not known":                        post(Post{"s/3", 1, at(9 * time.Second), true, false}),
		"s/4 was sent, and nobody has handed it in":            post(Post{"s/4", 1, at(9 * time.Second), true, false}),
		"s/1 was POSTed again after it had worked":             post(Post{"s/1", 2, at(9 * time.Second), true, false}),
		"the attempts of s/2 are out of order":                 post(Post{"s/2", 0, at(9 * time.Second), false, false}),
		"s/1 has more than 2 attempts":                         post(Post{"s/1", 3, at(9 * time.Second), false, false}),
		"r was sent 2 requests within 1ms":                     post(Post{"s/2", 1, at(2001 * time.Millisecond), true, false}),
		"s/2 was sent 1s after its time to live":               func(r *Run) { r.Latest["s/2"] = at(time.Second) },
		"s/1 was sent to r after s/2":                          post(Post{"s/1", 3, at(9 * time.Second), false, false}),
		"the response to s/1 is":                               func(r *Run) { r.Ends["s/1"] = End{"DONE", "", "s/2"} },
		"s/1 has not ended":                                    func(r *Run) { r.Ends["s/1"] = End{"SENDING", "", ""} },
		"s/1 has worked and FAILED":                            func(r *Run) { r.Ends["s/1"] = End{"FAILED", "EXHAUSTED", ""} },
		"which was not reported to the sender":                 func(r *Run) { delete(r.Reported, "s/1") },
		"s/1 was reported to the sender as FAILED: it is DONE": func(r *Run) { r.Reported["s/1"] = []string{"DONE", "FAILED"} },
		"s/3 was reported to the sender and is not known":      func(r *Run) { r.Reported["s/3"] = []string{"DONE"} },
	} {
		r := good()
		spoil(r)
		_, wrongs := r.Check()
		found := false
		for _, wrong := range wrongs {
			found = found || strings.Contains(wrong, want)
		}
		require.True(t, found, "%s: %q", want, wrongs)
	}
	r := good()
	receiver := r.Receivers["r"]
	receiver.Posts = []Post{receiver.Posts[1], receiver.Posts[2]}
	receiver.Posts[0].Worked = false
	r.Receivers["r"] = receiver
	_, wrongs = r.Check()
	require.Equal(t, []string{"s/1 is DONE and has not worked"}, wrongs)
}
