package view

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The files of others are those that SHA256SUMS names, each from the package and version in README.md.
func TestThirdPartyFilesAreUnchanged(t *testing.T) {
	sums, err := os.ReadFile("thirdparty/SHA256SUMS")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(sums)), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		data, err := os.ReadFile(filepath.Join("thirdparty", name))
		require.NoError(t, err)
		is := sha256.Sum256(data)
		require.Equal(t, sum, hex.EncodeToString(is[:]), name)
	}
}

func TestNoDataBecomesHTML(t *testing.T) {
	for _, dir := range []string{".", "../page", "../chart", "../.."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if !strings.HasSuffix(file, "_test.go") {
				require.NotContains(t, string(text), "template.HTML", file)
				require.NotContains(t, string(text), "template.JS", file)
			}
		}
	}
	script, err := os.ReadFile("app.js")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(script), "\n"), 200)
}

func TestValues(t *testing.T) {
	for text, v := range map[string]Value{
		"0": Number(0), "999,999": Number(999_999), "1.23 M": Number(1_234_567), "2.50 G": Number(2_500_000_000),
		"1,023 bytes": Bytes(1023), "1.5 KiB": Bytes(1536), "0/s": Rate(0), "3.3/s": Rate(3.31), "1,204/s": Rate(1204),
	} {
		require.Equal(t, text, v.Text)
	}
	require.Equal(t, "1,234,567", Number(1_234_567).Title, "a rounded number has the exact one")
	require.Equal(t, "1 message", Count(1, "message"))
	require.Equal(t, "10,000+ messages", Bounded(10_000, true, "message"))
	for text, d := range map[string]time.Duration{
		"250 ms": 250 * time.Millisecond, "1.5 s": 1500 * time.Millisecond, "2 min": 2 * time.Minute,
		"1 h 5 min": 65 * time.Minute, "2 d 1 h": 49 * time.Hour,
	} {
		require.Equal(t, text, Span(d))
	}
	now := time.Unix(1_800_000_000, 0)
	for text, at := range map[string]time.Time{
		"now": now, "5 s ago": now.Add(-5 * time.Second), "in 3 min": now.Add(3 * time.Minute),
		"47 h ago": now.Add(-47 * time.Hour), "2 d ago": now.Add(-50 * time.Hour),
	} {
		require.Equal(t, text, ago(now, at))
	}
	l := &Layout{Now: now, Page: &Page{Parts: []Part{{Problem: "It failed " + At(now.Add(-time.Minute)) + ", not 2026-99-99T00:00:00.000Z."}}}}
	html, err := Render("live", l)
	require.NoError(t, err)
	require.Contains(t, string(html), `It failed <time class="ago " datetime="2027-01-15T07:59:00.000Z" title="2027-01-15 07:59:00.000 UTC">1 min ago</time>, not 2026-99-99T00:00:00.000Z.</bdi>`)
	long := Text(strings.Repeat("ä", 10<<10))
	require.Contains(t, long.Text, "(10,240 characters)")
	require.Less(t, len(long.Title), 3000)
	require.Equal(t, "a\uFFFDb", Text("a\xffb").Text)
}

// The title and the icon have the state of the worst part.
func TestHeading(t *testing.T) {
	for _, test := range []struct {
		parts         []Part
		heading, icon string
	}{
		{nil, "Feed – jetpull", "static/icon.svg"},
		{[]Part{{ProblemTone: Good}}, "Feed – jetpull", "static/icon.svg"},
		{[]Part{{ProblemTone: Good}, {ProblemTone: Warn}}, "To look at: Feed – jetpull", "static/icon-warn.svg"},
		{[]Part{{ProblemTone: Warn}, {ProblemTone: Good, Source: Source{Name: "NATS", Asked: time.Unix(1, 0), Stale: true}}}, "Not known: Feed – jetpull", "static/icon-muted.svg"},
		{[]Part{{Source: Source{Name: "NATS"}}}, "Not known: Feed – jetpull", "static/icon-muted.svg"},
		{[]Part{{Source: Source{Name: "NATS", Asked: time.Unix(1, 0), Tone: Warn}}}, "To look at: Feed – jetpull", "static/icon-warn.svg"},
		{[]Part{{Source: Source{Name: "NATS", Stale: true, Tone: Bad}}}, "In trouble: Feed – jetpull", "static/icon-bad.svg"},
		{[]Part{{ProblemTone: Bad}, {ProblemTone: Muted}}, "In trouble: Feed – jetpull", "static/icon-bad.svg"},
	} {
		page := &Page{Title: "Feed", Parts: test.parts}
		require.Equal(t, test.heading, page.Heading())
		require.Equal(t, test.icon, page.Icon())
		_, err := Static.Open(page.Icon()[len("static/"):])
		require.NoError(t, err)
	}
}

// The button that carries out an action and the one that does not never have the same word.
func TestQuestion(t *testing.T) {
	layout := &Layout{Page: &Page{Title: "1"}, Path: "operation", Query: url.Values{"id": {"1"}}, Confirm: &Action{Name: "cancel", Label: "Cancel the operation", Confirm: "Cancel it."}}
	html, err := Render("layout", layout)
	require.NoError(t, err)
	require.Contains(t, string(html), "<button>Cancel the operation</button>")
	require.Contains(t, string(html), `href="operation?id=1">Go back</a>`)
	require.NotContains(t, string(html), ">Cancel<")
}
