package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// dialect has the parts of statements that differ between databases.
type dialect struct {
	name       string // the type of names of streams and consumers, which must compare byte by byte
	table      string // follows the columns of a table
	into, skip string // begin and end an insert that does nothing if the row exists
	numbered   bool   // placeholders are $1, $2
}

var (
	postgres = dialect{name: "text", into: "INSERT INTO ", skip: " ON CONFLICT DO NOTHING", numbered: true}
	sqlite   = dialect{name: "text", table: " WITHOUT ROWID", into: "INSERT INTO ", skip: " ON CONFLICT DO NOTHING"}
	// MySQL compares text without case, and its default engine may lack transactions. ON DUPLICATE KEY would count an existing row, if the
	// driver asks for the number of rows found.
	mysql = dialect{name: "varbinary(255)", table: " ENGINE=InnoDB", into: "INSERT IGNORE INTO "}
)

// dialectOf asks a database for its kind. PostgreSQL and MySQL have version(); SQLite has not.
func dialectOf(ctx context.Context, db *sql.DB) (*dialect, error) {
	var version, lite string
	err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	switch {
	case err == nil && strings.HasPrefix(version, "PostgreSQL "):
		return &postgres, nil
	case err == nil && version != "" && version[0] >= '0' && version[0] <= '9':
		return &mysql, nil
	case err == nil:
		return nil, fmt.Errorf("inbox: the database is %q; use PostgreSQL, SQLite, MySQL or MariaDB", version)
	}
	if db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&lite) == nil {
		return &sqlite, nil
	}
	return nil, fmt.Errorf("inbox: ask the database for its version, as PostgreSQL, SQLite, MySQL and MariaDB have one: %w", err)
}

// insert returns a statement that inserts a row unless it exists.
func (d *dialect) insert(row string) string { return d.into + row + d.skip }

// bind replaces the question marks in a statement by the placeholders of the database.
func (d *dialect) bind(query string) string {
	for n := 1; d.numbered && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	return query
}

// exec runs a statement and returns the number of changed rows.
func (d *dialect) exec(ctx context.Context, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any,
) (int64, error) {
	result, err := on.ExecContext(ctx, d.bind(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// tables are the names of the tables and their columns. Sequences and times are the server's; times are in nanoseconds since 1970.
var tables = [][2]string{
	{"jetpull_inbox", "sequence bigint NOT NULL, stored bigint NOT NULL, PRIMARY KEY (stream, consumer, sequence, stored)"},
	{"jetpull_inbox_floors", "created bigint NOT NULL, acked bigint NOT NULL, since bigint NOT NULL, pruned bigint NOT NULL, " +
		"PRIMARY KEY (stream, consumer)"},
}

// Migrate creates the package's tables that do not exist yet. Several programs can call it at the same time, and at each start. If the
// tables exist, it needs no permission to create tables. On PostgreSQL they are in the first schema of the search_path.
func Migrate(ctx context.Context, db *sql.DB) error {
	if ctx == nil || db == nil {
		return errors.New("inbox: Migrate was called with a nil context or a nil *sql.DB; give both")
	}
	d, err := dialectOf(ctx, db)
	if err != nil {
		return err
	}
	for _, t := range tables {
		probe := fmt.Sprintf("SELECT count(*) FROM %s WHERE 1 = 0", t[0])
		create := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (stream %s NOT NULL, consumer %[2]s NOT NULL, %s)%s", t[0], d.name, t[1], d.table)
		var none int
		// PostgreSQL refuses the statement if another process creates the table meanwhile, and without permission to create one.
		if _, err := db.ExecContext(ctx, create); err != nil && db.QueryRowContext(ctx, probe).Scan(&none) != nil {
			return fmt.Errorf("inbox: create table %s: %w", t[0], err)
		}
	}
	return nil
}
