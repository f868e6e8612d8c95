package perform

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

func TestAnswers(t *testing.T) {
	for line, check := range map[string]func(error){
		`{"id":7,"outcome":"ack"}`:     func(err error) { require.NoError(t, err) },
		`{ "outcome" : "ack", "id":7}`: func(err error) { require.NoError(t, err) },
		`{"id":7,"outcome":"nak"}`:     func(err error) { require.EqualError(t, err, "the worker answered nak") },
		`{"id":7,"outcome":"nak","reason":"busy"}`: func(err error) {
			require.EqualError(t, err, "busy")
			_, ok := errors.AsType[*jetpull.RetryError](err)
			require.False(t, ok, "without a delay --retry-delays say when")
		},
		`{"id":7,"outcome":"nak","delay":0}`: func(err error) {
			e, ok := errors.AsType[*jetpull.RetryError](err)
			require.True(t, ok)
			require.Zero(t, e.After)
		},
		`{"id":7,"outcome":"nak","delay":1.5,"reason":"busy"}`: func(err error) {
			e, ok := errors.AsType[*jetpull.RetryError](err)
			require.True(t, ok)
			require.Equal(t, 1500*time.Millisecond, e.After)
			require.ErrorContains(t, err, "busy")
		},
		`{"id":7,"outcome":"term","reason":"bad"}`: func(err error) {
			_, ok := errors.AsType[*jetpull.TerminateError](err)
			require.True(t, ok)
			require.ErrorContains(t, err, "bad")
		},
	} {
		a, err := parseAnswer([]byte(line))
		require.NoError(t, err, line)
		require.EqualValues(t, 7, a.ID)
		check(a.result())
	}
	for line, want := range map[string]string{
		``:                                      "print other text to standard error",
		`hello`:                                 `it is not an object such as {"id":1,"outcome":"ack"}`,
		`[]`:                                    "it is not an object",
		`{"id":"7","outcome":"ack"}`:            "it is not an object",
		`{"id":-1,"outcome":"ack"}`:             "it is not an object",
		`{"id":7,"outcome":"ack"`:               "it is not an object",
		`{"id":7,"outcome":"ack"} 8`:            "there is more after the object",
		`{"id":7}`:                              `the outcome "" is none of ack, nak, term and progress`,
		`{"id":7,"outcome":"done"}`:             `the outcome "done" is none of`,
		`{"id":7,"outcome":"nak","dealy":1}`:    `unknown field "dealy"`,
		`{"id":7,"outcome":"nak","delay":-1}`:   "the delay -1 is not in 0..",
		`{"id":7,"outcome":"nak","delay":1e9}`:  "the delay 1e+09 is not in 0..",
		`{"id":7,"outcome":"ack","delay":1}`:    "a delay belongs to nak",
		`{"id":7,"outcome":"ack","reason":"x"}`: "a reason belongs to nak or term",
	} {
		_, err := parseAnswer([]byte(line))
		require.ErrorContains(t, err, want, line)
	}
}

// FuzzAnswer looks for lines that are an answer with values that the library would refuse.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"id":7,"outcome":"nak","delay":1.5,"reason":"busy"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		a, err := parseAnswer(line)
		if err != nil {
			return
		}
		if e, ok := errors.AsType[*jetpull.RetryError](a.result()); ok {
			require.GreaterOrEqual(t, e.After, time.Duration(0))
		}
	})
}
