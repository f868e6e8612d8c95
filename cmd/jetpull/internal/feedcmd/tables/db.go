// Package tables opens the database of a feed, and is the commands that show what it has.
package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

// DB is the database of a command, and how it prints.
type DB struct {
	JSON bool

	dsn string
}

// Flags adds the flags to a command and those below it.
func (t *DB) Flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&t.dsn, "db", "sqlite:feed.db", "`DSN` of the database: sqlite:FILE, postgres://… or sqlserver://…")
	cmd.PersistentFlags().BoolVar(&t.JSON, "json", false, "print JSON, an object a line")
}

// With runs f on the opened database.
func (t *DB) With(ctx context.Context, f func(s *feed.Store) error) (err error) {
	s, err := feed.Open(ctx, t.dsn)
	if err != nil {
		return UsageOf(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// WithExisting is With, but makes no file of SQLite: in one that is not there, nothing can be found.
func (t *DB) WithExisting(ctx context.Context, f func(s *feed.Store) error) error {
	rest, isFile := strings.CutPrefix(t.dsn, "sqlite:")
	path, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if isFile && path != "" && !strings.HasPrefix(path, ":memory:") {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("no database at %s; jetpull feed add makes it", path)
		}
	}
	return t.With(ctx, f)
}

// UsageOf makes an error of an option, or of the DSN, one of the command line.
func UsageOf(err error) error {
	if errors.Is(err, feed.ErrInvalid) {
		return cli.Usage(err)
	}
	return err
}

// Partition is a partition with the columns' names.
type Partition struct {
	ID      string      `json:"id"`
	Gate    int         `json:"gate"`
	Status  feed.Status `json:"status"`
	Owner   string      `json:"owner"`
	Until   *time.Time  `json:"until"`
	Epoch   int64       `json:"epoch"`
	Sealed  bool        `json:"sealed"`
	Version int64       `json:"version"`
}

// itemJSON is an item with the columns' names, and its data as text.
type itemJSON struct {
	PartitionID string      `json:"partition_id"`
	ID          string      `json:"id"`
	Gate        int         `json:"gate"`
	Status      feed.Status `json:"status"`
	Attempt     int         `json:"attempt"`
	Errors      []string    `json:"errors"`
	Data        []byte      `json:"data"` // base64
	// Text is Data where that is UTF-8, and null elsewhere.
	Text      *string        `json:"text"`
	NotBefore *time.Time     `json:"not_before"`
	Version   int64          `json:"version"`
	History   []feed.Attempt `json:"history"`
}

// Shown is a partition as it is shown.
func Shown(p *feed.Partition) Partition {
	return Partition{p.ID, p.Gate, p.Status, p.Owner, timeOrNil(p.Until), p.Epoch, p.Sealed, p.Version}
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (t *DB) printPartition(out io.Writer, p feed.Partition) error {
	if t.JSON {
		return cli.WriteJSON(out, Shown(&p))
	}
	sealed := "open"
	if p.Sealed {
		sealed = "sealed"
	}
	_, err := fmt.Fprintf(out, "%-30s  %-9s  %4d  %-6s  %s\n", OneLine(p.ID), p.Status, p.Gate, sealed, OneLine(cmp.Or(p.Owner, "–")))
	return err
}

func (t *DB) printItem(out io.Writer, it feed.Item) error {
	if t.JSON {
		line := itemJSON{
			PartitionID: it.Partition, ID: it.ID, Gate: it.Gate, Status: it.Status, Attempt: it.Attempt, Errors: append([]string{}, it.Errors...),
			Data: append([]byte{}, it.Data...), NotBefore: timeOrNil(it.NotBefore), Version: it.Version, History: append([]feed.Attempt{}, it.History()...),
		}
		if utf8.Valid(it.Data) {
			line.Text = new(string(it.Data))
		}
		return cli.WriteJSON(out, line)
	}
	_, err := fmt.Fprintf(out, "%-30s  %-9s  %4d  %7d  %s\n", OneLine(it.ID), it.Status, it.Gate, it.Attempt, OneLine(string(it.Data)))
	return err
}

// header prints the names of what printPartition and printItem print, where that is text.
func (t *DB) header(out io.Writer, items bool) error {
	if t.JSON {
		return nil
	}
	line := fmt.Sprintf("%-30s  %-9s  %4s  %-6s  %s\n", "partition", "status", "gate", "sealed", "owner")
	if items {
		line = fmt.Sprintf("%-30s  %-9s  %4s  %7s  %s\n", "item", "status", "gate", "attempt", "data")
	}
	_, err := io.WriteString(out, line)
	return err
}

// OneLine shows text of users on one line of a terminal, without its control characters.
func OneLine(text string) string {
	const most = 100
	quoted := strconv.Quote(text)
	quoted = quoted[1 : len(quoted)-1]
	if runes := []rune(quoted); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return quoted
}
