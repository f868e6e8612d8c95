package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/feed"
)

// The gates. Each résumé is classified at the first. The best are ranked at the second, after the last résumé.
const (
	classifying = 0
	ranking     = 1
)

// best is the number of résumés in a ranking.
const best = 10

var (
	cities   = []string{"Berlin", "Lagos", "Lima", "Osaka", "Oslo"}
	forename = []string{"Ada", "Grace", "Alan", "Barbara", "Edsger", "Frances", "Donald", "Radia", "Niklaus", "Shafi"}
	surname  = []string{"Okafor", "Quispe", "Tanaka", "Hansen", "Schmidt", "Adeyemi", "Rojas", "Sato", "Berg", "Vogel"}
	skills   = []string{"Go", "SQL", "NATS", "statistics", "Norwegian", "welding", "on-call", "prose"}
	wanted   = map[string]int{"Go": 20, "SQL": 15, "NATS": 25, "on-call": 10, "prose": 5}
)

// resume is the data of an item. It gets its score when it is classified.
type resume struct {
	Name   string `json:"name"`
	Text   string `json:"text"`
	Score  int    `json:"score,omitempty"`
	Failed int    `json:"failed,omitempty"` // attempts before this one
}

// draw generates the résumés of a city. They are the same in each run.
func draw(city, n int) []feed.Item {
	r := rand.New(rand.NewPCG(uint64(city), 0))
	items := make([]feed.Item, n)
	for i := range items {
		var has []string
		for _, s := range skills {
			if r.IntN(2) == 0 {
				has = append(has, s)
			}
		}
		text := fmt.Sprintf("%d years of %s", 1+r.IntN(20), strings.Join(has, ", "))
		data, err := json.Marshal(resume{Name: forename[r.IntN(len(forename))] + " " + surname[r.IntN(len(surname))], Text: text})
		if err != nil {
			panic(err) // strings can always be encoded
		}
		items[i] = feed.Item{ID: fmt.Sprintf("%03d", i+1), Gate: classifying, Data: data}
	}
	return items
}

// busy reports whether the classifier fails: at the first attempt, for every tenth résumé.
func busy(it feed.Item) bool { return it.Attempt == 1 && strings.HasSuffix(it.ID, "7") }

var errBusy = errors.New("the classifier is busy")

// classify scores a résumé by its years and its wanted skills.
func classify(it feed.Item) (resume, error) {
	var r resume
	if err := json.Unmarshal(it.Data, &r); err != nil {
		return resume{}, feed.Permanent(err)
	}
	if busy(it) {
		return resume{}, errBusy
	}
	years, list, _ := strings.Cut(r.Text, " years of ")
	if _, err := fmt.Sscan(years, &r.Score); err != nil {
		return resume{}, feed.Permanent(fmt.Errorf("years %q: %w", years, err))
	}
	for skill := range strings.SplitSeq(list, ", ") {
		r.Score += wanted[skill]
	}
	r.Failed = it.Attempt - 1
	return r, nil
}

// rank returns the best of the classified résumés.
func rank(items []feed.Item) ([]resume, error) {
	list := make([]resume, len(items))
	for i, it := range items {
		if it.Status != feed.Complete {
			return nil, fmt.Errorf("résumé %s is %s", it.ID, it.Status)
		}
		if err := json.Unmarshal(it.Data, &list[i]); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(a, b resume) int { return cmp.Compare(b.Score, a.Score) })
	return list[:min(best, len(list))], nil
}
