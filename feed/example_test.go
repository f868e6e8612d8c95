package feed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/glebarez/sqlite"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed"
)

// Résumés are classified, each on its own and with retries; the ranking waits for the last of them.
func Example() {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := feed.Open(ctx, "sqlite:"+filepath.Join(dir, "feed.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()

	items := []feed.Item{{ID: "ranking", Gate: 1}}
	for n := range 20 {
		items = append(items, feed.Item{ID: strconv.Itoa(n), Data: []byte(strconv.Itoa(n))})
	}
	if _, err := store.CreatePartition(ctx, feed.Partition{ID: "resumes", Sealed: true}, items...); err != nil {
		panic(err)
	}
	process := func(ctx context.Context, it feed.Item) (feed.Response, error) {
		if it.ID == "ranking" {
			defer stop()
			return feed.Response{Done: true}, rank(ctx, store)
		}
		n, err := strconv.Atoi(string(it.Data))
		if err != nil {
			return feed.Response{}, feed.Permanent(err)
		}
		if n%10 == 3 && it.Attempt == 1 {
			return feed.Response{}, feed.RetryAfter(0, errors.New("the classifier is busy"))
		}
		score, err := json.Marshal(n * 7 % 20)
		return feed.Response{Done: true, Data: score}, err
	}
	watcher := feed.NewWatcher(store, feed.ProcessorFunc(process), feed.AutoClose(), feed.Logger(slog.New(slog.DiscardHandler)))
	fmt.Println(watcher.Run(ctx))
	// Output:
	// 1. résumé 17 with score 19
	// 2. résumé 14 with score 18
	// 3. résumé 11 with score 17
	// <nil>
}

func rank(ctx context.Context, store *feed.Store) error {
	gate := 0
	list, err := store.Items(ctx, feed.Query{Partition: "resumes", Gate: &gate})
	if err != nil {
		return err
	}
	score := func(it feed.Item) int {
		n, _ := strconv.Atoi(string(it.Data))
		return n
	}
	slices.SortFunc(list, func(a, b feed.Item) int { return cmp.Compare(score(b), score(a)) })
	for i, it := range list[:3] {
		fmt.Printf("%d. résumé %s with score %d\n", i+1, it.ID, score(it))
	}
	return nil
}

// An order and the work for it are stored by one transaction: there is no order that nobody works on, and no work for an
// order that was rolled back.
func ExampleStore_CreatePartitionTx() {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, err := gorm.Open(sqlite.Open(filepath.Join(dir, "shop.db")), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	store, err := feed.NewStore(ctx, db) // in the shop's own database
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if err := db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, amount INTEGER)").Error; err != nil {
		panic(err)
	}
	order := func(id string, amount int) error {
		return db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec("INSERT INTO orders VALUES (?, ?)", id, amount).Error; err != nil {
				return err
			}
			_, err := store.CreatePartitionTx(ctx, tx, feed.Partition{ID: id, Sealed: true}, feed.Item{ID: "charge"}, feed.Item{ID: "ship", Gate: 1})
			if amount > 1000 {
				return errors.New("the amount is over the limit") // rolls back the order and its work
			}
			return err
		})
	}
	fmt.Println(order("o1", 20), order("o2", 2000))

	watcher := feed.NewWatcher(store, feed.ProcessorFunc(func(_ context.Context, it feed.Item) (feed.Response, error) {
		fmt.Println(it.Partition, it.ID)
		if it.ID == "ship" {
			stop()
		}
		return feed.Response{Done: true}, nil
	}), feed.AutoClose(), feed.Logger(slog.New(slog.DiscardHandler)))
	fmt.Println(watcher.Run(ctx))
	// Output:
	// <nil> the amount is over the limit
	// o1 charge
	// o1 ship
	// <nil>
}

// At most two requests at a time go to the model, whose items are at gate 1, over all watchers of this database, and at most 100 begin
// in any second.
func ExampleLimits() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := feed.Open(ctx, "sqlite::memory:")
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.CreatePartition(ctx, feed.Partition{ID: "questions"}, slices.Repeat([]feed.Item{{Gate: 1}}, 20)...); err != nil {
		panic(err)
	}
	var running, asked atomic.Int64
	ask := func(context.Context, feed.Item) (feed.Response, error) {
		if running.Add(1) > 2 {
			fmt.Println("too many at a time")
		}
		defer running.Add(-1)
		if asked.Add(1) == 20 {
			stop()
		}
		return feed.Response{Done: true}, nil
	}
	limit := feed.Limit{Gate: 1, Concurrency: 2, Rate: 100, Per: time.Second}
	watcher := feed.NewWatcher(store, feed.ProcessorFunc(ask), feed.Limits(limit), feed.Logger(slog.New(slog.DiscardHandler)))
	fmt.Println(watcher.Run(ctx), asked.Load())
	// Output:
	// <nil> 20
}
