package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// plantedWithin is the number of seeds within which the simulation has to find a planted bug.
const plantedWithin = 300

// planted are the bugs to be planted: a text in a source file of the relay, and the text that replaces it.
var planted = []struct{ name, file, text, bug string }{
	{
		name: "a window is counted from memory after a take-over", file: "work/window.go",
		text: "\t\tclaimed.Posts = []gate.Posts{{Age: -takeover / 2, Count: r.RateLimit}}\n", bug: "\t\t_ = gate.Posts{}\n",
	},
	{
		name: "entries stay with a process that has lost its pin", file: "work/gate.go",
		text: "\t\tg.pin = \"\"\n", bug: "",
	},
	{
		name: "a record is written over when its message is handed in again", file: "store/record.go",
		text: "\treturn s.Swap(Versioned{Record: r}, r)\n",
		bug:  "\tv, err := s.Load(context.Background(), r.Source, r.ID)\n\tif err != nil {\n\t\tv = Versioned{}\n\t}\n\treturn s.Swap(v, r)\n",
	},
	{
		name: "an entry is sent though an earlier one of its source is unsettled", file: "work/send.go",
		text: "\tcase first != nil && first.Sequence < m.Sequence():\n", bug: "\tcase first != nil && m == nil:\n",
	},
	{
		name: "a message is sent whose time to live is over", file: "work/gate.go",
		text: "\t\tif !expires.IsZero() && expires.Sub(g.w.store.Now()) <= dueWithin {\n", bug: "\t\tif false {\n",
	},
	{
		name: "a redrive that a process died in is taken for done", file: "work/failedmessages.go",
		text: "\tcase e.Generation == item.Redrives+1 && (e.Status == machine.Arrived || e.Status == machine.Sending) && e.Attempt == 0,\n",
		bug:  "\tcase\n",
	},
	{
		name: "the result of a poll is dropped", file: "work/answers.go",
		text: "\tw.crashpoint(\"before-polled\")\n", bug: "\tw.crashpoint(\"before-polled\")\n\tif event.Kind == machine.Asked {\n\t\treturn nil\n\t}\n",
	},
}

// TestPlantedBugsHaveTheirPlace checks that each text is still in the source, since the bugs are not built in each run.
func TestPlantedBugsHaveTheirPlace(t *testing.T) {
	for _, p := range planted {
		sourceWith(t, p.file, p.text)
	}
}

// TestPlantedBugs builds the simulation with each bug, and checks that the simulation finds it.
func TestPlantedBugs(t *testing.T) {
	if !*plantBugs {
		t.Skip("builds the relay once for each bug: -sim.planted")
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			exe := buildWith(t, p.file, p.text, p.bug)
			cmd := exec.Command(exe, "-test.run=^TestSimulation$", "-test.timeout=0", "-sim.seed=1", fmt.Sprintf("-sim.count=%d", plantedWithin),
				"-sim.reports=1")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("%d seeds did not find it", plantedWithin)
			}
			found := regexp.MustCompile(`seed \d+ fails:\s*.*`).Find(out)
			if found == nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("found: %s", found)
		})
	}
}

// sourceWith reads a file of the relay, which must contain a text once.
func sourceWith(t *testing.T, file, text string) (path, source string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), text); n != 1 {
		t.Fatalf("%s has the text %q %d times instead of once; plant the bug where that code is now", file, text, n)
	}
	return path, string(raw)
}

// buildWith builds the test binary with one file of the relay changed.
func buildWith(t *testing.T, file, text, bug string) string {
	t.Helper()
	path, source := sourceWith(t, file, text)
	dir := t.TempDir()
	changed, overlay, exe := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{changed: strings.Replace(source, text, bug, 1), overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("build: %w\n%s", err, out))
	}
	return exe
}
