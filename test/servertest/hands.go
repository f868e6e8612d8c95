package servertest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Purge removes all messages of a stream, as an operator can do while a system runs.
func Purge(tb testing.TB, js jetstream.JetStream, stream string) {
	tb.Helper()
	s, err := js.Stream(tb.Context(), stream)
	require.NoError(tb, err)
	require.NoError(tb, s.Purge(tb.Context()))
}

// Recreate deletes a stream and creates it again with the same configuration. Its sequences start at 1 again.
func Recreate(tb testing.TB, js jetstream.JetStream, stream string) {
	tb.Helper()
	s, err := js.Stream(tb.Context(), stream)
	require.NoError(tb, err)
	require.NoError(tb, js.DeleteStream(tb.Context(), stream))
	_, err = js.CreateStream(tb.Context(), s.CachedInfo().Config)
	require.NoError(tb, err)
}

// DeleteConsumers deletes the consumers of all streams of the account.
func DeleteConsumers(tb testing.TB, js jetstream.JetStream) {
	tb.Helper()
	for stream := range js.StreamNames(tb.Context()).Name() {
		s, err := js.Stream(tb.Context(), stream)
		require.NoError(tb, err)
		for consumer := range s.ConsumerNames(tb.Context()).Name() {
			require.NoError(tb, s.DeleteConsumer(tb.Context(), consumer))
		}
	}
}
