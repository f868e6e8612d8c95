package natscontext

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
)

// As in the nats command, an nkey goes before a JWT.
func TestOneLogin(t *testing.T) {
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(file, seed, 0o600))
	opts, err := (&Context{NKey: file, UserJWT: "jwt", UserSeed: string(seed)}).Options()
	require.NoError(t, err)
	var used nats.Options
	for _, set := range opts {
		require.NoError(t, set(&used))
	}
	require.NotEmpty(t, used.Nkey)
	require.Nil(t, used.UserJWT)
}

func TestExpandHome(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	require.Equal(t, "/home/ann/a/b", ExpandHome("~/a/b"))
	require.Equal(t, "/etc/x", ExpandHome("/etc/x"))
	require.Equal(t, "~other/x", ExpandHome("~other/x"))
}
