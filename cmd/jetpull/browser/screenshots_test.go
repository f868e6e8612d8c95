package test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/browser/internal/world"
)

// TestScreenshots writes the pictures of the documentation into the folder that SCREENSHOTS names. It also shows that the world of the
// demo comes to have what each page shows.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" && testing.Short() {
		t.Skip("make screenshots runs it: the demo takes a while to have something to show")
	}
	startBrowser(t)
	w, err := world.Start(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	b := openTab(t, serve(t, w.Console), wide)
	if dir != "" {
		// The pictures show charts of a few minutes.
		b.open("consumers")
		time.Sleep(60 * time.Second)
	}
	picture := func(name string, l look, page string, texts ...string) {
		t.Helper()
		b.look(l)
		b.open(page)
		b.eventually(texts...)
		if dir != "" && name != "" {
			require.NoError(t, os.WriteFile(dir+"/"+name+".png", run(b, chromedp.CaptureScreenshot()), 0o600))
		}
	}
	picture("", look{1280, "light"}, "deadletters", "smtp 550")
	picture("consumers", look{1280, "light"}, "consumers", "no worker", "at its limit", "paused")
	picture("consumer", look{1280, "dark"}, "consumer?stream=ORDERS&name=warehouse", "which is the limit")
	picture("broker", look{1280, "light"}, "broker", "invoices", "crm")
	picture("relay", look{1280, "light"}, "relay", "partner", "legacy")
	picture("", look{1280, "dark"}, "failed", "legacy")
	picture("feed", look{1280, "light"}, "feed", "held by 4 failed items")
	picture("overview", look{1280, "light"}, "overview", "in trouble", "is held by")
	picture("overview-narrow", look{360, "dark"}, "overview", "in trouble")
}
