package relay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSampleConfigIsTheDefault(t *testing.T) {
	got := DefaultConfig()
	require.NoError(t, got.ReadINI([]byte(SampleConfig())))
	require.Equal(t, DefaultConfig(), got)
	require.NoError(t, got.Validate())
}

func TestLoadConfigNamesAllThatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.ini")
	require.NoError(t, os.WriteFile(file, []byte("[relay]\nconcurrency=none\n[nats]\nname=a.b\nreplicas=3\n"), 0o600))
	_, err := LoadConfig(Sources{File: file})
	for _, key := range []string{"concurrency", "[nats] name", "[nats] replicas"} {
		require.ErrorContains(t, err, key)
	}
}

// A token that no request can carry would lock everybody out.
func TestAdminTokenThatCannotBeSent(t *testing.T) {
	for token, ok := range map[string]bool{
		"": true, "s3cret": true, "two words": true, "s3cret\n": false, " s3cret": false, "s3\x01cret": false,
		"s3cret\x7f": false,
	} {
		c := DefaultConfig()
		c.Admin.Token = token
		err := c.Validate()
		if ok {
			require.NoError(t, err, "%q", token)
			continue
		}
		require.ErrorContains(t, err, "[admin] token: it has a control character, or a space at an end", "%q", token)
		require.NotContains(t, err.Error(), "s3")
	}
}

// A file is refused, or its configuration can be validated.
func FuzzReadINI(f *testing.F) {
	f.Add([]byte(SampleConfig()))
	f.Add([]byte("[relay]\nauto-redrive-in-seconds=1,,1e9\n[nats]\nname=a.b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := DefaultConfig()
		if c.ReadINI(data) == nil {
			_ = c.Validate()
			require.Positive(t, c.Relay.Takeover)
			require.Positive(t, c.HTTP.MaxBodyBytes)
		}
	})
}
