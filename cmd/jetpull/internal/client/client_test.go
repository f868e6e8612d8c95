package client

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

func TestPlain(t *testing.T) {
	require.Equal(t, "a: b", Plain(errors.New("jetpull: a: jetpull: b")))
	err := fmt.Errorf("consume: %w", &jetpull.OptionError{Option: "Concurrency", Problem: `4: consumer "Concurrency" has ack policy all`})
	require.Equal(t, `--concurrency: 4: consumer "Concurrency" has ack policy all`, Plain(err))
	theirs := errors.New("Prefetch is no flag of mine")
	require.Equal(t, theirs.Error(), Plain(theirs), "only errors of options speak of options")
}

func TestIsSubject(t *testing.T) {
	for subject, want := range map[string][2]bool{
		"a": {true, true}, "a.b-c": {true, true}, "a.*.b": {false, true}, "a.>": {false, true}, ">": {false, true},
		"": {}, "a.": {}, ".a": {}, "a b": {}, "a.>.b": {}, "a.b*": {false, true},
	} {
		require.Equal(t, want, [2]bool{IsSubject(subject, false), IsSubject(subject, true)}, subject)
	}
}

func TestCheckURLs(t *testing.T) {
	for _, urls := range []string{"localhost", "127.0.0.1:4222", "nats://a, tls://b:1,ws://c,wss://d", "NATS://a"} {
		require.NoError(t, checkURLs("--nats", urls))
	}
	require.EqualError(t, checkURLs("--nats", "nats://a,http://user:secret@b"), `--nats: scheme "http" is none of nats, tls, ws, wss`)
}
