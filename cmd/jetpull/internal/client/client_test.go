package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckURLs(t *testing.T) {
	for _, urls := range []string{"localhost", "127.0.0.1:4222", "nats://a, tls://b:1,ws://c,wss://d", "NATS://a"} {
		require.NoError(t, checkURLs("--nats", urls))
	}
	require.EqualError(t, checkURLs("--nats", "nats://a,http://user:secret@b"), `--nats: scheme "http" is none of nats, tls, ws, wss`)
}
