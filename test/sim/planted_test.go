package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// plantedWithin is in how many seeds the simulation has to find a planted bug.
const plantedWithin = 3000

// planted are bugs that are put into the client's source: what stands in a file,
// and what takes its place.
var planted = []struct {
	name, file string
	text, bug  string
}{
	{
		name: "one nak is dropped when a caller has gone", file: "pull.go",
		text: "\t\tr.stats.handedBack++\n\t\tr.do(action{kind: actNak, msg: m})\n",
		bug:  "\t\tr.stats.handedBack++\n\t\tif r.stats.handedBack > 1 {\n\t\t\tr.do(action{kind: actNak, msg: m})\n\t\t}\n",
	},
	{
		name: "a status settles the account of its pull twice", file: "pull.go",
		text: "\t\tr.room += p.left - left\n\t\tp.left = left\n",
		bug:  "\t\tr.room += 2 * (p.left - left)\n\t\tp.left = left\n",
	},
	{
		name: "a pin that was lost is kept", file: "priority.go",
		text: "\t\t\th.ID = \"\"\n\t\t\treturn true\n",
		bug:  "\t\t\treturn true\n",
	},
	{
		name: "a message is given up though its dead letter is not stored", file: "deadletter.go",
		text: "\t\tst.retry(h, attempts, max(time.Second, st.retryDelay(attempts)))\n",
		bug:  "\t\tst.terminate(&d)\n\t\tst.settled(h)\n",
	},
	{
		name: "a dead letter is published again under another id", file: "deadletter.go",
		text: `jetstream.WithMsgID(s.stream+":"+s.consumer+":"+sequence+":"+stored)`,
		bug:  `jetstream.WithMsgID(sequence+":"+stored+":"+dead.Header.Get(HeaderDeadAttempts))`,
	},
	{
		name: "a stream does not end with its consumer", file: "troubles.go",
		text: "if errors.Is(err, ErrConsumerDeleted) && !st.set.streaming.awaitConsumer {",
		bug:  "if errors.Is(err, ErrConsumerDeleted) && st.set.streaming.awaitConsumer {",
	},
	{
		name: "a copy of a message that is done is handled", file: "copies.go",
		text: "\t\th.fate = d.memory.fate(id)\n",
		bug:  "",
	},
}

// TestPlantedBugs builds the simulation with each bug in the client and shows
// that it finds it.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the client once for each bug")
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			exe := buildWith(t, p.file, p.text, p.bug)
			var given atomic.Uint64
			tried, found := 0, verdict{}
			(&pool{
				exe:  exe,
				next: func() (uint64, bool) { n := given.Add(1); return n, n <= plantedWithin },
				took: func(v verdict) bool {
					tried++
					found = v
					return len(v.Wrongs) == 0
				},
			}).run()
			if len(found.Wrongs) == 0 {
				t.Fatalf("%d seeds did not find it", tried)
			}
			t.Logf("found by seed %d, the %d. that was run: %s", found.Seed, tried, found.Wrongs[0])
		})
	}
}

// buildWith builds the test binary with one file of the client changed.
func buildWith(t *testing.T, file, text, bug string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), text); n != 1 {
		t.Fatalf("%s has the text %q %d times instead of once; plant the bug where that code is now", file, text, n)
	}
	dir := t.TempDir()
	changed, overlay, exe := filepath.Join(dir, file), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{changed: strings.Replace(string(source), text, bug, 1), overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", exe, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%s: %w\n%s", cmd, err, out))
	}
	return exe
}
