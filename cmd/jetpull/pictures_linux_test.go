package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/jetpull/jetpull/partition"
)

// terminal opens a terminal of a size: what programs write to the second file is read from the first.
func terminal(t *testing.T, columns, rows int) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("there is no pseudo-terminal on this system: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	conn, err := screen.SyscallConn()
	require.NoError(t, err)
	number, problem := 0, error(nil)
	require.NoError(t, conn.Control(func(fd uintptr) {
		if problem = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); problem == nil {
			problem = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
		}
		if problem == nil {
			number, problem = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, problem)
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return screen, program
}

var (
	frame   = regexp.MustCompile(`(?s)\x1b\[(\d+)A([^\x1b]*(?:\x1b\[K[^\x1b]*)*)\x1b\[J`)
	passing = regexp.MustCompile(`\d\d:\d\d:\d\d`)
)

// picture is the second drawing of a live view.
func picture(t *testing.T, columns, rows int, args ...string) string {
	t.Helper()
	screen, program := terminal(t, columns, rows)
	cmd := asCommand(append(args, "--interval", "100ms")...)
	cmd.Stdout, cmd.Stderr = program, t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.NoError(t, screen.SetReadDeadline(time.Now().Add(time.Minute)))
	var text []byte
	for !frame.Match(text) {
		some := make([]byte, 4096)
		n, err := screen.Read(some)
		require.NoError(t, err, string(text))
		text = append(text, some[:n]...)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	shown := frame.FindSubmatch(text)[2]
	return passing.ReplaceAllString(strings.NewReplacer("\r", "", "\x1b[K", "").Replace(string(shown)), "12:34:56")
}

// The live views fit a terminal of 80 columns and 24 rows, and one of 40 columns and 10 rows. Their pictures are in testdata/views.
// With UPDATE_VIEWS=1 in the environment the test writes them.
func TestPicturesOfLiveViews(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{MaxAckPending: 1000})
	f.publish(t, numbers(12)...)
	transform := partition.Transform(16, "bills.*")
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BILLS", Subjects: []string{"bills.*"}, SubjectTransform: &transform})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), f.js, "BILLS", partition.Config{Name: "billing", Partitions: 16, Subject: "bills.{partition}.*"})
	require.NoError(t, err)
	db := newDB(t)
	for i := range 16 {
		require.Zero(t, jetpullFeed(t, db, "1\n2\n3\n", "add", fmt.Sprintf("resumes-%02d", i)).code)
	}
	for name, args := range map[string][]string{
		"info":      {"info", "S", "c", "--watch", "--nats", f.url},
		"partition": {"partition", "watch", "billing", "--nats", f.url},
		"feed":      {"feed", "watch", "--db", db},
	} {
		for _, size := range [][2]int{{80, 24}, {40, 10}} {
			got := picture(t, size[0], size[1], args...)
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			require.Less(t, len(lines), size[1], got)
			for _, line := range lines {
				require.LessOrEqual(t, utf8.RuneCountInString(line), size[0], got)
			}
			file := filepath.Join("testdata", "views", fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]))
			if os.Getenv("UPDATE_VIEWS") != "" {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, file)
		}
	}
}
