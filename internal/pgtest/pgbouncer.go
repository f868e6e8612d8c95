package pgtest

import (
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
)

// ErrNoBouncer reports that PgBouncer is not installed.
var ErrNoBouncer = errors.New("no PgBouncer: install Debian's package pgbouncer")

// Bouncer is a running PgBouncer.
type Bouncer struct {
	process
	// DSN is the DSN for connections through PgBouncer.
	DSN string
}

// StartBouncer starts PgBouncer in transaction mode on a free port of 127.0.0.1, in front of the database dsn, with one session to it. It does not
// support prepared statements, as before version 1.21. settings are lines of its configuration.
func StartBouncer(ctx context.Context, dsn string, settings ...string) (*Bouncer, error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, ErrNoBouncer
		}
	}
	b := &Bouncer{}
	if b.process, err = newProcess("feed-pgbouncer-"); err != nil {
		return nil, err
	}
	address, file, err := b.configure(ctx, program, dsn, settings)
	if err == nil {
		err = b.start(ctx, func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		}, program, file)
	}
	if err != nil {
		b.Stop()
		return nil, fmt.Errorf("start PgBouncer: %w", err)
	}
	return b, nil
}

// old matches versions without the setting max_prepared_statements.
var old = regexp.MustCompile(`^PgBouncer 1\.(1?[0-9]|20)\.`)

// configure writes the configuration file.
func (b *Bouncer) configure(ctx context.Context, program, dsn string, settings []string) (address, file string, err error) {
	server, err := url.Parse(dsn)
	if err != nil {
		return "", "", err
	}
	port, err := freePort(ctx)
	if err != nil {
		return "", "", err
	}
	database := fmt.Sprintf("* = host=%s port=%s user=%s", server.Hostname(), server.Port(), server.User.Username())
	if password, given := server.User.Password(); given {
		database += " password=" + password
	}
	if version, err := exec.CommandContext(ctx, program, "--version").Output(); err != nil {
		return "", "", err
	} else if !old.Match(version) {
		settings = append(settings, "max_prepared_statements = 0")
	}
	lines := append([]string{
		"[databases]", database,
		"[pgbouncer]", "listen_addr = 127.0.0.1", fmt.Sprint("listen_port = ", port), "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 1",
	}, settings...)
	file = filepath.Join(b.dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return "", "", err
	}
	server.Host = fmt.Sprint("127.0.0.1:", port)
	b.DSN = server.String()
	return server.Host, file, b.own(file)
}
