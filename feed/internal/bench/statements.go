package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
)

// countStatements has the server count what it does from now on. The function that it returns prints the statements
// that took longest; it does nothing unless that is asked for.
func countStatements(ctx context.Context, kind, dsn string) (report func() error, err error) {
	if !*statements || kind != postgres {
		return func() error { return nil }, nil
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"CREATE EXTENSION pg_stat_statements", "SELECT pg_stat_statements_reset()"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return func() error { return errors.Join(printStatements(ctx, db), db.Close()) }, nil
}

func printStatements(ctx context.Context, db *sql.DB) (err error) {
	rows, err := db.QueryContext(ctx, `SELECT query, calls, total_exec_time, rows FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY total_exec_time DESC LIMIT 10`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var query string
		var calls, touched int64
		var total float64
		if err := rows.Scan(&query, &calls, &total, &touched); err != nil {
			return err
		}
		query = strings.Join(strings.Fields(query), " ")
		_, _ = fmt.Fprintf(os.Stderr, "%10.1f ms %8d calls %8d rows  %.160s\n", total, calls, touched, query)
	}
	return rows.Err()
}
