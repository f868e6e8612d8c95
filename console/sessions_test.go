package console

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASessionLastsTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(func(string) Role { return Admin }, slog.New(slog.DiscardHandler))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: s.open("token")})
		time.Sleep(12 * time.Hour)
		_, ok := s.user(r)
		require.True(t, ok)
		time.Sleep(time.Second)
		_, ok = s.user(r)
		require.False(t, ok)
	})
}

func TestTokens(t *testing.T) {
	for token, want := range map[string]Role{"a": Admin, "r": ReadOnly, "x": NoAccess, "": NoAccess} {
		require.Equal(t, want, Tokens("a", "r")(token), token)
		require.Equal(t, NoAccess, Tokens("", "")(token), token)
	}
}
