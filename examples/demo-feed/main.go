// Demo-feed ranks résumés: five partitions of a hundred, of which each résumé is classified by a service that fails one in
// ten at first, and the best ten of a partition are listed after the last of them. Two watcher processes share the
// work on a SQLite database, and one of them is killed in the middle.
//
// It needs nothing but this program, which runs itself as the watchers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if db := os.Getenv(watcherDB); db != "" {
		if err := watch(db, os.Getenv(watcherName), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "watcher %s: %v\n", os.Getenv(watcherName), err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flag.IntVar(&s.resumes, "resumes", 500, "résumés, in five partitions")
	flag.StringVar(&s.db, "keep", "", "`FILE` for the database, which is kept; a temporary one otherwise")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.check(flag.Args())
	if err == nil {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-feed:", err)
		os.Exit(1)
	}
}

type settings struct {
	resumes int
	db      string
}

const minResumes, maxResumes = 50, 100_000

func (s settings) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("argument %q is not understood; see -help", args[0])
	case s.resumes < minResumes || s.resumes > maxResumes:
		return fmt.Errorf("-resumes %d is not in %d..%d", s.resumes, minResumes, maxResumes)
	}
	return nil
}
