package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plantedWithin is in how many seeds the simulation has to find a planted bug.
const plantedWithin = 400

// planted are bugs that are put into the client's source: what stands in a file, and what takes its place.
var planted = []struct {
	name, file string
	text, bug  string
}{
	{
		name: "one nak is dropped when a caller has gone", file: "internal/pull/account.go",
		text: "\te.stats.HandedBack++\n",
		bug:  "\te.stats.HandedBack++\n\tif e.stats.HandedBack == 1 {\n\t\treturn\n\t}\n",
	},
	{
		name: "a status settles the account of its pull twice", file: "internal/pull/frames.go",
		text: "\te.capacity.free += p.promise(now, st, e.limits.Replay)\n",
		bug:  "\te.capacity.free += 2 * p.promise(now, st, e.limits.Replay)\n",
	},
	{
		name: "a pin that was lost is kept", file: "internal/pull/account.go",
		text: "\t\te.pins.set(group, \"\")\n",
		bug:  "",
	},
	{
		name: "a redelivery does not free its credit", file: "internal/worker/deliver.go",
		text: "\t\t\te.replace(m, delivered)\n",
		bug:  "\t\t\te.replace(m, delivered)\n\t\t\tcontinue\n",
	},
	{
		name: "a retry is not kept in progress", file: "internal/worker/keepalive.go",
		text: "e.failed) && e.since <= now-half {\n",
		bug:  "e.failed) && e.waits == nil && e.since <= now-half {\n",
	},
	{
		name: "an inbox counts as drained while messages are on its wire", file: "internal/transport/inbox.go",
		text: "\tif sub == nil || sub.Drain() != nil {\n",
		bug:  "\tif sub == nil || sub.Unsubscribe() == nil {\n",
	},
	{
		name: "a message that is done is handled again", file: "internal/worker/deliver.go",
		text: "\t\treturn nil, q.history.settlement(id)\n",
		bug:  "\t\treturn nil, Undecided\n",
	},
	{
		name: "a cancellation counts as an attempt", file: "internal/worker/handle.go",
		text: "\treturn p.handlers.Err() != nil && !errors",
		bug:  "\treturn false && !errors",
	},
	{
		name: "a message is given up though its dead letter is not stored", file: "internal/worker/settle.go",
		text: "\t\tif err == nil {\n\t\t\tp.terminate(e, try, DeadLettered, why)\n",
		bug:  "\t\tif err == nil || !p.isLast(e) {\n\t\t\tp.terminate(e, try, DeadLettered, why)\n",
	},
	{
		name: "a reset of the consumer is not noticed", file: "internal/worker/history.go",
		text: "\t\th.forget()\n",
		bug:  "",
	},
	{
		name: "an edit of the consumer is not noticed", file: "session.go",
		text: "\ts.session.Store(n)\n",
		bug:  "\tif n.continues(before) {\n\t\treturn\n\t}\n\ts.session.Store(n)\n",
	},
	{
		name: "an edit of MaxDeliver is not noticed", file: "session.go",
		text: "\ts.session.Store(n)\n",
		bug:  "\tif n.continues(before) {\n\t\tn.cfg.MaxDeliver = before.cfg.MaxDeliver\n\t}\n\ts.session.Store(n)\n",
	},
	{
		name: "the inbox of a silent pull is unsubscribed", file: "internal/pull/clock.go",
		text: "\t\te.leaving.prove(now)\n\t\te.conclude(now, p, &ending{silent: true})\n",
		bug:  "\t\te.giveUp(now, p, true)\n\t\te.conclude(now, p, &ending{silent: true})\n",
	},
}

// TestPlantedBugsHaveTheirPlace: make sim-planted does not run each time, and the client changes.
func TestPlantedBugsHaveTheirPlace(t *testing.T) {
	for _, p := range planted {
		sourceWith(t, p.file, p.text)
	}
}

// TestPlantedBugs builds the simulation with each bug in the client and shows that it finds it.
func TestPlantedBugs(t *testing.T) {
	if !*plantBugs {
		t.Skip("builds the client once for each bug; make sim-planted")
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			found := runWorkers(t, buildWith(t, p.file, p.text, p.bug), 1, plantedWithin)
			require.NotEmpty(t, found, "%d seeds did not find it", plantedWithin)
			how := regexp.MustCompile("WRONG .*|panic: .*|fatal error: .*").FindString(found[0])
			require.NotEmpty(t, how, "its worker has failed for another reason: %s", found[0])
			t.Log(how)
		})
	}
}

// sourceWith reads a file of the client that has a text once.
func sourceWith(t *testing.T, file, text string) (path, source string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", file))
	require.NoError(t, err)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(raw), text), "%s has the text %q once; plant the bug where that code is now", file, text)
	return path, string(raw)
}

// buildWith builds the test binary with one file of the client changed.
func buildWith(t *testing.T, file, text, bug string) string {
	t.Helper()
	path, source := sourceWith(t, file, text)
	dir := t.TempDir()
	changed, overlay, exe := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(source, text, bug, 1)), 0o600))
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", exe, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return exe
}
