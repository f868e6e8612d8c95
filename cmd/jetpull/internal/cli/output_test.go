package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

func TestPlain(t *testing.T) {
	require.Equal(t, "a: b", Plain(errors.New("jetpull: a: jetpull: b")))
	err := fmt.Errorf("consume: %w", &jetpull.OptionError{Option: "Concurrency", Problem: `4: consumer "Concurrency" has ack policy all`})
	require.Equal(t, `--concurrency: 4: consumer "Concurrency" has ack policy all`, Plain(err))
	theirs := errors.New("Prefetch is no flag of mine")
	require.Equal(t, theirs.Error(), Plain(theirs), "only errors of options speak of options")
}

// A connection that breaks is an error, also where the system has the same number for it as for a closed standard output.
func TestOnlyOutputIsClosed(t *testing.T) {
	closed := fmt.Errorf("list: %w", &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE})
	require.Equal(t, ExitClosed, ExitCode(context.Background(), closed))
	require.Equal(t, ExitError, ExitCode(context.Background(), &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}))
	require.Equal(t, ExitError, ExitCode(context.Background(), &fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.ENOSPC}))
}

func TestFlagOf(t *testing.T) {
	for option, want := range map[string]string{
		"n": "--count", "MaxWait": "--wait", "FillBatch": "--fill", "NoWait": "--no-wait", "MinAckPending": "--min-ack-pending", "Group": "--group",
	} {
		require.Equal(t, want, flagOf(option))
	}
}

// A drawing takes the place of the one before, also if it has fewer lines, and clears no screen.
func TestScreen(t *testing.T) {
	require.Equal(t, "a\x1b[K\nb\x1b[K\n\x1b[J", over(0, "a\nb\n"))
	require.Equal(t, "\x1b[2Ac\x1b[K\n\x1b[J", over(2, "c\n"))
	require.Equal(t, "\x1b[1Ad\x1b[K\ne\x1b[K\n\x1b[J", over(1, "d\ne\n"))
}
