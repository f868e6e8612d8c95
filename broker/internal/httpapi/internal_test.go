package httpapi

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	directory "github.com/jetpull/jetpull/broker/internal/admin"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/broker/internal/journal"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/openapi"
	"github.com/jetpull/jetpull/test/servertest"
)

// The document and the routes have the same operations.
func TestDocumentHasTheRoutes(t *testing.T) {
	doc, err := openapi.Parse(openAPI)
	require.NoError(t, err)
	served := map[string]bool{}
	for _, r := range New(work.New(work.Parts{Index: jobindex.New()}), &directory.Directory{},
		Options{Logger: slog.New(slog.DiscardHandler), Stopping: t.Context()}).routes() {
		served[r.Method+" "+r.Pattern] = r.Access != open
	}
	require.Equal(t, served, doc.Operations())
}

func TestPaged(t *testing.T) {
	items := []uint32{9, 7, 5, 3, 1}
	number := func(n uint32) uint32 { return n }
	at := func(n int64) *domain.Position { return &domain.Position{At: n} }
	for _, tt := range []struct {
		page domain.Page
		want []uint32
	}{
		{domain.Page{Limit: 2}, []uint32{9, 7}},
		{domain.Page{Limit: 2, After: at(7)}, []uint32{5, 3}},
		{domain.Page{Limit: 2, After: at(6)}, []uint32{5, 3}},
		{domain.Page{Limit: 2, After: at(3)}, []uint32{1}},
		{domain.Page{Limit: 2, After: at(1)}, []uint32{}},
		{domain.Page{Limit: 2, Before: at(3)}, []uint32{7, 5}},
		{domain.Page{Limit: 2, Before: at(7)}, []uint32{9}},
		{domain.Page{Limit: 2, Before: at(9)}, []uint32{}},
		{domain.Page{Limit: 2, Before: at(0)}, []uint32{3, 1}},
		{domain.Page{Limit: 9, Before: at(0)}, items},
	} {
		require.Equal(t, tt.want, paged(slices.Clone(items), number, tt.page), "%+v", tt.page)
	}
	require.Empty(t, paged(nil, number, domain.Page{Limit: 2, Before: at(4)}))
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor(domain.Position{At: 5, Seq: 6}))
	f.Add(cursor(domain.Position{At: math.MinInt64, Seq: math.MaxUint64}))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := parseCursor(s); ok {
			require.Equal(t, s, cursor(p))
		}
	})
}

func TestLinksEscapeIDs(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Equal(t, "/channel/a%2Fb/message/%2E%2E", link(r, "channel", "a/b", "message", ".."))
	require.Equal(t, "/producer/%2E", link(r, "producer", "."))
	require.Equal(t, "/producer/a.b", link(r, "producer", "a.b"))
}

// A loopback listener behind a proxy is not private. The log warns of that once.
func TestProxiedRequestsAreWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		loopback bool
		header   string
		want     int
	}{
		{true, "X-Forwarded-For", 1},
		{true, "Forwarded", 1},
		{true, "X-Broker-Producer-ID", 0},
		{false, "X-Forwarded-For", 0},
	} {
		var log bytes.Buffer
		listener := "192.0.2.2:80"
		if tt.loopback {
			listener = "127.0.0.1:80"
		}
		a := New(work.New(work.Parts{Index: jobindex.New()}), &directory.Directory{},
			Options{HTTP: service.HTTP{Listener: listener}, Stopping: t.Context(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 2 {
			r := httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody)
			r.Header.Set(tt.header, "192.0.2.1")
			a.ServeHTTP(httptest.NewRecorder(), r)
		}
		require.Equal(t, tt.want, strings.Count(log.String(), "advice=\"set [admin] token"), "%+v", tt)
	}
}

// A role that another build has stored gives no rights of an administrator.
func TestARoleOfAnotherBuild(t *testing.T) {
	srv := servertest.RunServer(t)
	store, err := journal.Open(t.Context(), srv.JetStream(t, srv.Connect(t)), journal.Config{Name: "broker", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	d := store.Directory
	_, err = d.Channels.Save(t.Context(), domain.Channel{Stakeholder: domain.Stakeholder{ID: "ch", Token: "ct"}})
	require.NoError(t, err)
	_, err = d.Accesses.Save(t.Context(), domain.AccessToken{Stakeholder: domain.Stakeholder{ID: "x", Token: "xt"}, Channel: "ch", Role: domain.Role(admin)})
	require.NoError(t, err)
	a := New(work.New(work.Parts{Index: store.Index}), d, Options{
		HTTP: service.HTTP{MaxBodyBytes: 1 << 20}, Admin: service.Admin{Token: "secret"}, Stopping: t.Context(), Logger: slog.New(slog.DiscardHandler),
	})
	r := httptest.NewRequest(http.MethodDelete, "/channel/ch", http.NoBody)
	r.Header.Set("X-Broker-Admin-Token", "xt")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, "the access token has the role manage: this needs the admin token", w.Body.String())
}
