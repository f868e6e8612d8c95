package packaging

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxSize is the maximum size of the stripped command in bytes. bench/size.md lists the size of each part.
const maxSize = 46_100_000

func needLinux(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("skipped: the command of a release for Linux runs on Linux only")
	}
}

func TestPlatforms(t *testing.T) {
	b := released(t).config.Builds[0]
	if want := []string{"linux", "darwin", "windows"}; !slices.Equal(b.Goos, want) {
		t.Errorf("built for %q, want %q", b.Goos, want)
	}
	if want := []string{"amd64", "arm64"}; !slices.Equal(b.Goarch, want) {
		t.Errorf("built for %q, want %q", b.Goarch, want)
	}
	if !slices.Contains(b.Flags, "-trimpath") || b.ModTimestamp != "{{ .CommitTimestamp }}" {
		t.Errorf("flags %q and time %q are not those of a build that can be repeated", b.Flags, b.ModTimestamp)
	}
}

// The output of jetpull version is the tag.
func TestVersionIsTheTag(t *testing.T) {
	needLinux(t)
	out, err := exec.Command(released(t).command, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "jetpull " + tag + "\n"; string(out) != want {
		t.Errorf("jetpull version prints %q, want %q", out, want)
	}
}

func TestCommandIsSmallStaticAndWithoutPaths(t *testing.T) {
	path := released(t).command
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the command has %d bytes", len(text))
	if len(text) > maxSize {
		t.Errorf("the command has %d bytes, and %d at most are allowed: see what has grown with go tool nm -size -sort size", len(text), maxSize)
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the command needs libraries: %q (%v)", libraries, err)
	}
	if file.Section(".debug_info") != nil || file.Section(".symtab") != nil {
		t.Error("the command is not stripped: build it with -ldflags '-s -w'")
	}
	folder, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(folder+"/")) {
		t.Errorf("the command has the path %s of the machine that built it", folder)
	}
}

// The bill of materials and the notices name exactly the modules that the command's build information lists.
func TestMaterials(t *testing.T) {
	r := released(t)
	out := filepath.Join(t.TempDir(), "sbom.json")
	cmd := exec.Command("go", "run", "./sbom", tag, "1", out, r.command)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false -gcflags=all=-dwarf=false")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var sbom struct {
		Packages []struct{ Name, VersionInfo string }
	}
	if err := json.Unmarshal(text, &sbom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(r.command)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(sbom.Packages), len(info.Deps)+2; got != want {
		t.Errorf("%d packages, want %d: the command, Go's standard library and %d modules", got, want, len(info.Deps))
	}
	notices, err := os.ReadFile(filepath.Join(root, "cmd/jetpull/internal/licenses/licenses.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		switch {
		case strings.HasPrefix(m.Path, "github.com/jetpull/jetpull"):
		case !strings.Contains(string(notices), "\n"+m.Path+" "+m.Version+"\n"):
			t.Errorf("the command holds %s %s, and its notices do not: run make licenses", m.Path, m.Version)
		case !slices.Contains(sbom.Packages, struct{ Name, VersionInfo string }{m.Path, m.Version}):
			t.Errorf("the command holds %s %s, and the bill of materials does not", m.Path, m.Version)
		}
	}
}

// The image of a release is for two platforms. Like the image of deploy/Dockerfile, it runs as an unprivileged user.
func TestImage(t *testing.T) {
	image := released(t).config.DockersV2[0]
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(image.Platforms, want) {
		t.Errorf("the image is for %q, want %q", image.Platforms, want)
	}
	var runs []string
	for _, name := range []string{image.Dockerfile, "deploy/Dockerfile"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		_, how, found := strings.Cut(string(text), "\nUSER 65532:65532\n")
		if !found {
			t.Errorf("%s has no line USER 65532:65532", name)
		}
		runs = append(runs, how)
	}
	if runs[0] != runs[1] {
		t.Errorf("%s ends with\n%s\nand deploy/Dockerfile with\n%s", image.Dockerfile, runs[0], runs[1])
	}
}
