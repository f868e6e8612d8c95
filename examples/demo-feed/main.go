// Demo-feed ranks résumés in five partitions, of a hundred each by default. A service classifies each résumé, and fails at the first attempt
// for one in ten. After the last résumé of a partition, the best ten are ranked. Two watcher processes share the work on a SQLite database.
// One of them is killed during the work.
//
// The program also runs as the watchers, so it needs no other program.
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
