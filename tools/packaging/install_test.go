package packaging

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// contents are the files of both packages.
var contents = []string{
	"/usr/bin/jetpull", "/usr/lib/systemd/system/jetpull-broker.service", "/usr/share/doc/jetpull/copyright", "/usr/share/doc/jetpull/licenses.txt",
}

func TestContentsOfTheRPM(t *testing.T) {
	file, err := os.Open(released(t).rpm)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	rpm, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range infos {
		names = append(names, f.Name())
		if mode := f.Mode() & 0o777; (mode == 0o755) != (f.Name() == "/usr/bin/jetpull") || f.UserName() != "root" {
			t.Errorf("%s has the mode %o and belongs to %s", f.Name(), mode, f.UserName())
		}
	}
	if slices.Sort(names); !slices.Equal(names, contents) {
		t.Errorf("the package has %q, want %q", names, contents)
	}
	if nevra, err := rpm.Header.GetNEVRA(); err != nil || nevra.Name != "jetpull" || nevra.Version != strings.TrimPrefix(tag,
		"v") || nevra.Arch != rpmArch() {
		t.Errorf("the package is %v (%v)", nevra, err)
	}
}

// need skips a test on a machine without a program, and fails it in ci, which skips no test.
func need(t *testing.T, program, pkg string) {
	t.Helper()
	switch _, err := exec.LookPath(program); {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v: ci skips no test: install Debian's package %s", err, pkg)
	default:
		t.Skipf("skipped, since %s is missing: install Debian's package %s", program, pkg)
	}
}

// install unpacks and configures the deb in a new root that has nothing else.
func install(t *testing.T) string {
	t.Helper()
	need(t, "dpkg", "dpkg")
	if os.Getuid() != 0 {
		t.Skip("skipped: dpkg installs as root only; run the test as root")
	}
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(dir, "var/lib/dpkg", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("dpkg", "--root="+dir, "--force-script-chrootless", "--install", released(t).deb).CombinedOutput(); err != nil {
		t.Fatalf("dpkg: %v\n%s", err, out)
	}
	return dir
}

// The deb installs in a fresh root, systemd accepts its unit there, and the unit's command starts, is ready and stops.
func TestDebInAFreshRoot(t *testing.T) {
	dir := install(t)
	out, err := exec.Command("dpkg-query", "--admindir="+filepath.Join(dir, "var/lib/dpkg"), "--show", "--showformat",
		"${Status} ${Version} ${Architecture}", "jetpull").Output()
	if want := "install ok installed " + strings.TrimPrefix(tag, "v") + " " + runtime.GOARCH; err != nil || string(out) != want {
		t.Errorf("dpkg-query: %q (%v), want %q", out, err, want)
	}
	list, err := os.ReadFile(filepath.Join(dir, "var/lib/dpkg/info/jetpull.list"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		} else if !info.IsDir() {
			names = append(names, name)
		}
	}
	if slices.Sort(names); !slices.Equal(names, contents) {
		t.Errorf("the package has %q, want %q", names, contents)
	}
	t.Run("unit", func(t *testing.T) {
		need(t, "systemd-analyze", "systemd")
		// The root lacks the units that ours is ordered after, which is not an error in our unit.
		if out, err := exec.Command("systemd-analyze", "verify", "--recursive-errors=no", "--man=no", "--root="+dir,
			"jetpull-broker.service").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	})
	t.Run("start", func(t *testing.T) { start(t, dir) })
}

// start runs the command of the unit in the root dir, as an unprivileged user, and stops it.
func start(t *testing.T, dir string) {
	const user = 65532
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/jetpull-broker.service"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ExecStart=jetpull (.*)$`).FindStringSubmatch(string(unit))
	if found == nil {
		t.Fatalf("the unit starts no jetpull:\n%s", unit)
	}
	args := strings.Fields(found[1])
	args[slices.Index(args, "--listen")+1] = "127.0.0.1:0"
	state := filepath.Join(dir, "var/lib/jetpull-broker") // the unit's StateDirectory
	if err := errors.Join(os.Mkdir(state, 0o700), os.Chown(state, user, user)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/jetpull", args...)
	cmd.Path, cmd.Dir, cmd.Env, cmd.Err = "/usr/bin/jetpull", "/", []string{"HOME=/"}, nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: user, Gid: user}}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = writer.CloseWithError(io.EOF)
		ended <- err
	}()
	address, log := "", new(strings.Builder)
	lines := bufio.NewScanner(reader)
	for address == "" && lines.Scan() {
		log.WriteString(lines.Text() + "\n")
		_, address, _ = strings.Cut(lines.Text(), "listening on ")
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if address == "" {
		t.Fatalf("the broker ended: %v\n%s", <-ended, log)
	}
	resp, err := http.Get(address + "/readyz")
	if err != nil {
		t.Error(err)
	} else if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz answers %s\n%s", resp.Status, log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the broker ended: %v\n%s", err, log)
	}
	if _, err := os.Stat(filepath.Join(state, "store")); err != nil {
		t.Error(err)
	}
}
