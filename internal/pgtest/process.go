package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/jetpull/jetpull/internal/natstest"
)

const startLimit = time.Minute

// process is a server program with its own folder. The zero process has no program.
type process struct {
	dir     string
	as      *syscall.Credential // the user that runs it; nil means the current user
	log     *bytes.Buffer
	command *exec.Cmd // nil if it was not started
	ended   chan struct{}
}

func newProcess(folder string) (p process, err error) {
	p.log = new(bytes.Buffer)
	if p.as, err = unprivileged(); err != nil {
		return p, err
	}
	if p.dir, err = os.MkdirTemp("", folder); err != nil {
		return p, err
	}
	return p, p.own(p.dir)
}

// own makes the user that runs the program the owner of a path.
func (p *process) own(path string) error {
	if p.as == nil {
		return nil
	}
	return os.Chown(path, int(p.as.Uid), int(p.as.Gid))
}

// program returns a command that runs a program in the folder. If the system supports that, it ends with this process.
func (p *process) program(ctx context.Context, path string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, args...)
	command.Dir, command.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: p.as, Setpgid: true}
	natstest.EndWithParent(command, syscall.SIGQUIT)
	return command
}

// start starts the program, and waits until probe returns nil. Otherwise it ends the program, and the error contains the program's log.
func (p *process) start(ctx context.Context, probe func(context.Context) error, path string, args ...string) error {
	command, ended := p.program(context.WithoutCancel(ctx), path, args...), make(chan struct{})
	command.Stdout, command.Stderr = p.log, p.log
	if err := command.Start(); err != nil {
		return err
	}
	p.command, p.ended = command, ended
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended:\n%s", p.log)
		case <-ctx.Done():
			p.end()
			return fmt.Errorf("%w\n%s", err, p.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end ends the program at once.
func (p *process) end() {
	if p.command != nil {
		_ = p.command.Process.Signal(syscall.SIGQUIT) // an error means that it has ended
		<-p.ended
	}
}

// Stop ends the program at once and removes its folder. It does nothing if there is no program, such as for a server of [Env].
func (p *process) Stop() {
	p.end()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// unprivileged returns the user to run the server, which refuses to run as root. nil means the current user.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // no other user is needed
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, errors.New("root has no user to run the server as: postgres and nobody are missing")
}

func freePort(ctx context.Context) (int, error) {
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
