package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfConnection(t *testing.T) {
	for name, want := range map[string]bool{"Host": true, "Te": true, "Transfer-Encoding": true, "Content-Type": false, "X-Tenant": false} {
		require.Equal(t, want, OfConnection(name), name)
	}
}
