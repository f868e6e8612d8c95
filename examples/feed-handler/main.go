// Feed-handler is the HTTP handler of docs/tutorial-feed.md. It scores the résumés that jetpull feed posts, and ranks them at the next
// gate.
package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"slices"

	"github.com/jetpull/jetpull/feed"
)

func main() {
	store, err := feed.Open(context.Background(), "sqlite:feed.db")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler(store)))
}

func handler(store *feed.Store) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resume, err := io.ReadAll(r.Body)
		if r.Header.Get(feed.HeaderGate) == "0" && err == nil {
			score := crc32.ChecksumIEEE(resume) % 1000 // ask your classifier here
			_, _ = fmt.Fprintf(w, `{"done":true,"data":"%03d %s"}`, score, resume)
			return
		}
		gate := 0
		items, err := store.Items(r.Context(), feed.Query{Partition: r.Header.Get(feed.HeaderPartition), Gate: &gate})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError) // a failed attempt
			return
		}
		slices.SortFunc(items, func(a, b feed.Item) int { return bytes.Compare(b.Data, a.Data) })
		for i, it := range items[:min(10, len(items))] {
			fmt.Printf("%2d. %s\n", i+1, bytes.Trim(it.Data, `"`))
		}
		_, _ = fmt.Fprint(w, `{"done":true}`)
	}
}
