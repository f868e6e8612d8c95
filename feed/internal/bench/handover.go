package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed"
)

const (
	handOvers = 20
	deadLease = 3 * time.Second
	// settled is how long a watcher has to find that another one has what there is.
	settled = time.Second
)

// handOver measures how long a partition with work has no watcher: after its own was stopped, and after it died.
func (b *bench) handOver(ctx context.Context) error {
	var took []float64
	for range handOvers {
		err := b.on(ctx, postgres, func(s *feed.Store, dsn string) error {
			ms, err := stopOwner(ctx, s, dsn)
			took = append(took, ms)
			return err
		})
		if err != nil {
			return err
		}
	}
	slices.Sort(took)
	const name = "postgres: a watcher is stopped, to another's handler, "
	b.note(name+"p50", "ms", took[len(took)/2], target{atMost: 200})
	b.note(fmt.Sprintf("%slongest of %d", name, handOvers), "ms", took[len(took)-1], target{atMost: 200})
	return b.on(ctx, postgres, func(s *feed.Store, dsn string) error {
		seconds, err := ownerDies(ctx, s, dsn)
		b.note(fmt.Sprintf("postgres: a watcher dies with a lease of %v, to another's handler", deadLease), "s", seconds, target{atMost: deadLease.Seconds() + 1})
		return err
	})
}

// stopOwner stops a watcher in the first of two items, and returns how long it takes until another one begins the
// second.
func stopOwner(ctx context.Context, s *feed.Store, dsn string) (ms float64, err error) {
	if _, err := s.CreatePartition(ctx, feed.Partition{ID: "p"}, feed.Item{}, feed.Item{}); err != nil {
		return 0, err
	}
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	owning, end := context.WithCancel(ctx)
	defer end()
	stop := watch(owning, s, func(context.Context, feed.Item) (feed.Response, error) {
		begun <- struct{}{}
		<-finish
		return done()
	}, feed.Concurrency(1))
	<-begun
	other, err := feed.Open(ctx, dsn) // as another process has it
	if err != nil {
		close(finish)
		return 0, errors.Join(err, stop())
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	got, stopOther := firstOf(ctx, other)
	<-time.After(settled)
	stopped := time.Now()
	end() // before the handler returns, so that this one begins no more
	close(finish)
	err = stop()
	return (<-got).Sub(stopped).Seconds() * 1000, errors.Join(err, stopOther())
}

// firstOf runs a watcher and tells when its first handler began.
func firstOf(ctx context.Context, s *feed.Store) (<-chan time.Time, func() error) {
	got := make(chan time.Time, 2)
	return got, watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		got <- time.Now()
		return done()
	})
}

// ownerDies writes what a watcher does that renews a lease for a while and then dies, and returns how long it takes
// until another one begins the item.
func ownerDies(ctx context.Context, s *feed.Store, dsn string) (seconds float64, err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		"INSERT INTO partitions (id, gate, status, owner, until, epoch, version) VALUES ('p', 0, 'Available', 'dead', now() + interval '1 minute', 1, 1)",
		"INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('p', 'a', 0, 'Available', '', 1)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	got, stop := firstOf(ctx, s)
	var died time.Time
	tick := time.NewTicker(deadLease / 3)
	defer tick.Stop()
	for range 9 {
		died = time.Now()
		_, err := db.ExecContext(ctx, "UPDATE partitions SET version = version + 1, until = now() + $1 * interval '1 second' WHERE id = 'p'", deadLease.Seconds())
		if err != nil {
			return 0, errors.Join(err, stop())
		}
		<-tick.C
	}
	return (<-got).Sub(died).Seconds(), stop()
}
