package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// ErrNoBouncer says that PgBouncer is not installed.
var ErrNoBouncer = errors.New("no PgBouncer: install Debian's package pgbouncer")

// Bouncer is a running PgBouncer.
type Bouncer struct {
	// DSN is that of the database behind it.
	DSN     string
	address string
	dir     string
	log     bytes.Buffer
	command *exec.Cmd
	ended   chan struct{}
}

// StartBouncer starts PgBouncer in transaction mode on a free port of 127.0.0.1, in front of the database of a DSN, with which it has one session. It
// knows nothing of prepared statements, as before version 1.21. Settings are lines of its configuration.
func StartBouncer(ctx context.Context, dsn string, settings ...string) (*Bouncer, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, ErrNoBouncer
		}
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{ended: make(chan struct{})}
	if err = b.configure(ctx, program, dsn, as, settings); err == nil {
		b.command = exec.CommandContext(context.WithoutCancel(ctx), program, filepath.Join(b.dir, "pgbouncer.ini"))
		b.command.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
		b.command.Stdout, b.command.Stderr = &b.log, &b.log
		err = b.command.Start()
	}
	if err != nil {
		b.command = nil
		b.Stop()
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	go func() {
		_ = b.command.Wait()
		close(b.ended)
	}()
	if err := b.await(ctx); err != nil {
		b.Stop()
		return nil, fmt.Errorf("start PgBouncer: %w\n%s", err, b.log.String())
	}
	return b, nil
}

// old are versions without the setting max_prepared_statements.
var old = regexp.MustCompile(`^PgBouncer 1\.(1?[0-9]|20)\.`)

// configure writes the configuration.
func (b *Bouncer) configure(ctx context.Context, program, dsn string, as *syscall.Credential, settings []string) error {
	server, err := url.Parse(dsn)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "feed-pgbouncer-"); err != nil {
		return err
	}
	database := fmt.Sprintf("* = host=%s port=%s user=%s", server.Hostname(), server.Port(), server.User.Username())
	if password, given := server.User.Password(); given {
		database += " password=" + password
	}
	if version, err := exec.CommandContext(ctx, program, "--version").Output(); err != nil {
		return err
	} else if !old.Match(version) {
		settings = append(settings, "max_prepared_statements = 0")
	}
	lines := append([]string{
		"[databases]", database,
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprint("listen_port = ", port), "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 1",
	}, settings...)
	path := filepath.Join(b.dir, "pgbouncer.ini")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if as != nil {
		for _, path := range []string{b.dir, path} {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	b.address = fmt.Sprint("127.0.0.1:", port)
	server.Host = b.address
	b.DSN = server.String()
	return nil
}

// await waits until PgBouncer listens.
func (b *Bouncer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", b.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop stops PgBouncer at once and removes its folder.
func (b *Bouncer) Stop() {
	if b.command != nil {
		_ = b.command.Process.Kill() // an error: it has ended
		<-b.ended
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}
