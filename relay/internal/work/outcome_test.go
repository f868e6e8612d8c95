package work

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// The table of responses in docs/receivers.md: the effect of each on the message, and on its receiver.
func TestWhatAnAnswerMeans(t *testing.T) {
	after := http.Header{"Retry-After": {"7"}}
	answer := func(code int) *webhook.Answer { return &webhook.Answer{Code: code, Body: []byte(`{"n":1}`)} }
	asking := func(code int) *webhook.Answer { return &webhook.Answer{Code: code, Header: after} }
	type want struct {
		kind     machine.Kind
		outcome  machine.Outcome
		response string
		health   gate.Outcome
		hold     time.Duration
		gone     bool
	}
	for name, c := range map[string]struct {
		answer *webhook.Answer
		err    error
		asked  bool // the receiver has a status endpoint
		want   want
	}{
		"200":                         {answer: answer(200), want: want{response: `{"n":1}`, health: gate.Success}},
		"204":                         {answer: &webhook.Answer{Code: 204}, want: want{health: gate.Success}},
		"202 that can be asked about": {answer: answer(202), asked: true, want: want{outcome: machine.Pending, health: gate.Success}},
		"202":                         {answer: answer(202), want: want{health: gate.Success}},
		"302":                         {answer: answer(302), want: want{outcome: machine.Refused, health: gate.Success}},
		"404":                         {answer: answer(404), want: want{outcome: machine.Refused, health: gate.Success}},
		"408":                         {answer: answer(408), want: want{outcome: machine.Retry, health: gate.Success}},
		"410":                         {answer: answer(410), want: want{outcome: machine.Retry, health: gate.Unclear, gone: true}},
		"429":                         {answer: answer(429), want: want{outcome: machine.Retry, health: gate.Success}},
		"429 with Retry-After":        {answer: asking(429), want: want{outcome: machine.Retry, health: gate.Unclear, hold: 7 * time.Second}},
		"503 with Retry-After":        {answer: asking(503), want: want{outcome: machine.Retry, health: gate.Unclear, hold: 7 * time.Second}},
		"503":                         {answer: answer(503), want: want{outcome: machine.Retry, health: gate.Failure}},
		"500 with Retry-After":        {answer: asking(500), want: want{outcome: machine.Retry, health: gate.Failure}},
		"a body that breaks off": {
			answer: &webhook.Answer{Code: 200, Broken: errors.New("cut")},
			want:   want{kind: machine.Lost, outcome: machine.Retry, health: gate.Failure},
		},
		"no answer":     {err: errors.New("reset"), want: want{kind: machine.Lost, outcome: machine.Retry, health: gate.Failure}},
		"no connection": {err: fmt.Errorf("%w: refused", webhook.ErrNotSent), want: want{outcome: machine.Retry, health: gate.Failure}},
		"an address that is forbidden": {
			err:  fmt.Errorf("%w: %w", webhook.ErrNotSent, webhook.ErrForbiddenAddress),
			want: want{outcome: machine.Retry, health: gate.Unclear},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := store.Receiver{}
			if c.asked {
				r.StatusEndpoint = "http://h/{message_id}"
			}
			if c.want.kind == 0 {
				c.want.kind = machine.Answered
			}
			v := judge(r, c.answer, c.err)
			event := v.event
			require.Equal(t, c.want, want{event.Kind, event.Outcome, string(event.Response), v.health, v.hold, v.gone})
			require.Equal(t, event.Outcome == machine.Retry || event.Outcome == machine.Refused, event.Note.Error != "")
		})
	}
}
