package webhook

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// The official library verifies each signature with the secret that made it.
// NewSigner reads a list, so it allows space around the one secret; the library does not.
func FuzzSigner(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a/1", []byte("{}"))
	f.Add("whsec_!!", "", []byte(nil))
	f.Add("\n whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\r\n", "a/1", []byte("{}"))
	f.Fuzz(func(t *testing.T, secret, id string, payload []byte) {
		signer, err := NewSigner(secret)
		fields := strings.Fields(secret)
		if err != nil || len(fields) != 1 || id == "" {
			return
		}
		h := http.Header{}
		signer.Sign(h, id, time.Now(), payload)
		verifier, err := standardwebhooks.NewWebhook(fields[0])
		require.NoErrorf(t, err, "%q", secret)
		require.NoError(t, verifier.Verify(payload, h))
	})
}

// An address is public or refused, in whatever form it comes.
func FuzzPolicy(f *testing.F) {
	for _, text := range []string{"127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fe80::1%eth0", "8.8.8.8", "2002:7f00:1::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		err = Policy{}.Check(address)
		if plain := address.Unmap(); plain.IsLoopback() || plain.IsPrivate() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified() {
			require.ErrorIs(t, err, ErrForbiddenAddress)
		}
		if err != nil {
			require.ErrorIs(t, err, ErrForbiddenAddress)
		}
	})
}
