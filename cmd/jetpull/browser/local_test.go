package test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/stretchr/testify/require"
)

// Times and the fields for times are those of the reader's zone, with UTC in the title. Without a script they are UTC, and say so.
func TestLocalTime(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := newFakes("orders")
	base := serve(t, f.config())
	b := openTab(t, base, wide)
	const ahead = 5*time.Hour + 30*time.Minute
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	b.open("consumer?stream=orders&name=orders")
	b.eventually("7 messages wait", "or until (local time)")
	title := regexp.MustCompile(`^(\S+ \S+) local time, (\S+ \S+) UTC$`)
	for _, kind := range []string{"ago", "clock"} {
		found := evaluate[[]string](b, `[...document.querySelectorAll("time.`+kind+`")].flatMap(e => [e.title, e.textContent])`)
		require.NotEmpty(t, found, kind)
		for i := 0; i < len(found); i += 2 {
			times := title.FindStringSubmatch(found[i])
			require.NotNil(t, times, found[i])
			local, err := time.Parse(time.DateTime, times[1])
			require.NoError(t, err)
			exact, err := time.Parse("2006-01-02 15:04:05.999", times[2])
			require.NoError(t, err)
			require.Equal(t, ahead, local.Sub(exact.Truncate(time.Second)))
			if kind == "clock" {
				require.Equal(t, local.Format("15:04"), found[i+1])
			}
		}
	}

	// An action gets the time that the user means.
	until := time.Date(2100, 1, 2, 20, 30, 0, 0, time.UTC)
	evaluate[any](b, `document.querySelector("#do-pause input[name=until]").value = "2100-01-03T02:00"`)
	b.press("Pause")
	b.eventually("Done.")
	require.Equal(t, until.Format("2006-01-02T15:04:05.000Z"), evaluate[string](b, `document.querySelector("p.note.good time").dateTime`))

	// So does a filter, and its address is the same in each zone.
	b.open("failed?since=2026-02-28T20:30")
	b.eventually("Since (local time)")
	since := `document.querySelector("#filter input[name=since]")`
	require.Equal(t, "2026-03-01T02:00", evaluate[string](b, since+`.value`))
	evaluate[any](b, since+`.value = "2026-03-01T03:00"; `+since+`.dispatchEvent(new Event("input", {bubbles: true}))`)
	asked := func() string {
		u, err := url.Parse(b.url())
		require.NoError(t, err)
		return u.Query().Get("since")
	}
	require.Eventually(t, func() bool { return strings.HasPrefix(asked(), "2026-02-28T21:30") }, waitMost, 1, "%s", asked())
	require.Equal(t, "2026-03-01T03:00", evaluate[string](b, since+`.value`), "the field stays as it is")

	plain := openTab(t, base, wide)
	plain.noScript()
	plain.open("consumer?stream=orders&name=orders")
	plain.eventually("UTC", "or until (UTC)")
	require.Regexp(t, `\b\d\d:\d\d UTC\b`, plain.text(), "the axis of a chart")
}
