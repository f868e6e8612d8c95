package spans

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without a provider the spans are those of the parent, which goes on to the message and to its requests.
func TestParentGoesOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx, own, end := BeginMessage(t.Context(), "test", "message", parent)
	require.Equal(t, parent, own)
	h := http.Header{}
	Inject(ctx, h)
	require.Equal(t, parent, h.Get("Traceparent"))
	end(errors.New("it failed"))
	_, own, end = BeginMessage(t.Context(), "test", "message", "not a parent")
	require.Empty(t, own)
	end(nil)
}
