package security

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// identity is an operator, an account or a user with its key.
type identity struct {
	key    nkeys.KeyPair
	public string
}

func newIdentity(t *testing.T, create func() (nkeys.KeyPair, error)) identity {
	t.Helper()
	key, err := create()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	return identity{key, public}
}

// sign returns a token with claims.
func (i identity) sign(t *testing.T, claims jwt.Claims) string {
	t.Helper()
	token, err := claims.Encode(i.key)
	require.NoError(t, err)
	return token
}

// operated is a server in operator mode, and the account of its users.
type operated struct {
	*servertest.Server
	account identity
}

func newOperated(t *testing.T) operated {
	t.Helper()
	operator, system := newIdentity(t, nkeys.CreateOperator), newIdentity(t, nkeys.CreateAccount)
	o := operated{account: newIdentity(t, nkeys.CreateAccount)}
	claims := jwt.NewAccountClaims(o.account.public)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	o.Server = servertest.RunServer(t, servertest.WithConfig(fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\n"+
		"resolver_preload: {%[2]s: %[3]s, %[4]s: %[5]s}", operator.sign(t, jwt.NewOperatorClaims(operator.public)), system.public,
		operator.sign(t, jwt.NewAccountClaims(system.public)), o.account.public, operator.sign(t, claims))))
	return o
}

// user is the login of a user with permissions.
func (o operated) user(t *testing.T, permissions jwt.Permissions) nats.Option {
	t.Helper()
	user := newIdentity(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(user.public)
	claims.Permissions = permissions
	seed, err := user.key.Seed()
	require.NoError(t, err)
	return nats.UserJWTAndSeed(o.account.sign(t, claims), string(seed))
}

// fenced returns the first code of a language in a section of docs/permissions.md.
func fenced(t *testing.T, heading, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/permissions.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(page), "\n## "+heading+"\n")
	_, text, ok := strings.Cut(text, "```"+language+"\n")
	require.True(t, ok, heading)
	text, _, _ = strings.Cut(text, "```")
	return text
}

// The claims and the command of the page have the lists of the block of a worker. On a server in operator mode a worker works with them, and
// without one of them something names its subject.
func TestPermissionsAsJWT(t *testing.T) {
	var claims jwt.Permissions
	require.NoError(t, json.Unmarshal([]byte(fenced(t, "As a JWT", "json")), &claims))
	var subjects []string
	for subject := range servertest.WithoutEach(section(t, "A worker")) {
		subjects = append(subjects, subject)
	}
	require.Equal(t, subjects, append(append([]string{}, claims.Pub.Allow...), claims.Sub.Allow...))
	command := fenced(t, "As a JWT", "sh")
	require.Contains(t, command, "--allow-pub '"+strings.Join(claims.Pub.Allow, ",")+"'")
	require.Contains(t, command, "--allow-sub '"+strings.Join(claims.Sub.Allow, ",")+"'")

	for _, missing := range append([]string{""}, subjects...) {
		t.Run("without "+missing, func(t *testing.T) {
			t.Parallel()
			srv := newOperated(t)
			fill(t, srv.JetStream(t, srv.Connect(t, srv.user(t, jwt.Permissions{}))))
			less := claims
			less.Pub.Allow, less.Sub.Allow = without(claims.Pub.Allow, missing), without(claims.Sub.Allow, missing)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			named := strings.TrimSuffix(servertest.Literal(missing), ".")
			p := &problems{named: named, end: cancel}
			nc := srv.Connect(t, srv.user(t, less), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.add(err) }))
			err := parts["A worker"](ctx, srv.JetStream(t, nc), p)
			if missing == "" {
				require.NoError(t, errors.Join(err, ctx.Err()), p)
				return
			}
			// The server refuses an acknowledgement after the client has sent it.
			require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(err)+p.String(), named) }, time.Minute, time.Millisecond, "%v %s", err, p)
		})
	}
}

// without replaces a subject by one that nobody uses: an empty list allows all.
func without(subjects []string, missing string) (rest jwt.StringList) {
	for _, subject := range subjects {
		if subject == missing {
			subject = "none"
		}
		rest = append(rest, subject)
	}
	return rest
}
