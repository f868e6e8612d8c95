package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Limit bounds the work at a gate of all watchers that have the limit.
type Limit struct {
	Gate        int
	Concurrency int // items begun and not saved, at most; 0: any
	Rate        int // items begun in any window of Per, at most; 0: any
	Per         time.Duration
}

// Ask is a watcher's demand on a limit. Its numbers are absolute, so that an ask whose answer was lost does no harm.
type Ask struct {
	Limit
	Keep   int // the share that it does not give back now
	Demand int // the share that it wants, at least Keep
	Begins int // how many items it wants to begin within Use
	Use    time.Duration
	// BackAt is the At of a grant of which Back begins were not used and will not be.
	BackAt int64
	Back   int
	Leave  bool // the watcher ends
}

// Grant is the answer to an ask.
type Grant struct {
	Share, Begins int
	At            int64
}

// windowParts is the number of parts in which a window is counted: begins count for up to one part longer.
const windowParts = 100

// LimitState is the column state of feed_limits. Times are milliseconds of the database's clock.
type LimitState struct {
	Shares map[string]limitShare `json:"shares"` // by owner
	Begins []limitBegins         `json:"begins"` // of the last window of the last ask
}

type limitShare struct {
	Until int64 `json:"until"`
	Share int   `json:"share"`
	Waits bool  `json:"waits"` // for a greater share
	Late  bool  `json:"late"`  // for more begins
	Had   int   `json:"had"`   // the begins that it was granted, to compare the watchers that wait
}

// limitBegins are begins that may happen until a time.
type limitBegins struct {
	At int64 `json:"at"`
	N  int   `json:"n"`
}

// Grant decides on an ask at a time, by the limit of the watcher that asks.
//
// An example: three watchers, Concurrency 10, Rate 100 in 10 s. Each always has 60 items or more to begin, and wants a share of 10. A begin that
// is granted counts for 10 s from the time at which its use ends, 0.5 s after the ask and rounded up to a part of the window.
//
//	 time  asks  keeps  share  begins
//	 0 s   A     0      10     60      nobody else asks: all of the share, and 60 of 100 begins
//	 0 s   B     0      0      40      no share is free, so B waits; 40 begins are left
//	 0 s   C     0      0      0       C waits for both
//	 0.1   A     4      4      0       two wait and three share: 10/3 = 3 each are kept for B and C, so A keeps 4
//	 0.2   B     0      3      0       6 are free, of which 3 are C's
//	 0.3   C     0      3      0
//	11.1   A     2      4      34      the 100 begins counted until 10.6; B and C wait and had as many as A: a third, rounded up
//	11.1   B     3      3      33      66 are left; A has had more, so B shares with C
//	11.1   C     3      3      33
func (s *LimitState) Grant(now time.Time, t Terms, a *Ask) (g Grant) {
	ms := now.UnixMilli()
	maps.DeleteFunc(s.Shares, func(_ string, share limitShare) bool { return share.Until < ms })
	for i := range s.Begins {
		if b := &s.Begins[i]; b.At == a.BackAt {
			b.N = max(0, b.N-a.Back)
		}
	}
	s.Begins = slices.DeleteFunc(s.Begins, func(b limitBegins) bool {
		return b.N == 0 || (a.Rate > 0 && b.At < ms-a.Per.Milliseconds())
	})
	if a.Leave {
		delete(s.Shares, t.Owner)
		return g
	}
	if s.Shares == nil {
		s.Shares = map[string]limitShare{}
	}
	had := s.Shares[t.Owner].Had - a.Back
	if !s.Shares[t.Owner].Late { // begins of the others before it waits do not count
		for _, share := range s.Shares {
			had = max(had, share.Had)
		}
	}
	g.Share = max(0, min(a.Demand, s.free(a.Concurrency, t.Owner)))
	s.begin(ms, t.Owner, had, a, &g)
	s.Shares[t.Owner] = limitShare{
		Until: ms + t.Length.Milliseconds() + 1, Share: max(a.Keep, g.Share), Waits: g.Share < a.Demand, Late: g.Begins < a.Begins, Had: had + g.Begins,
	}
	return g
}

// free returns the largest possible share: all that the others do not have, without the part of each one that waits.
func (s *LimitState) free(concurrency int, owner string) int {
	if concurrency == 0 {
		return math.MaxInt
	}
	sharers, taken, without, had := 1, 0, false, s.Shares[owner].Share
	for other, share := range s.Shares {
		if other == owner {
			continue
		}
		taken += share.Share
		without = without || (share.Waits && share.Share == 0)
		if share.Share > 0 || share.Waits {
			sharers++
		}
	}
	part, left := concurrency/sharers, concurrency-taken
	if part == 0 && without && had > 0 && left <= had {
		return 0 // there are more watchers than parts: a watcher that had one leaves it to the next
	}
	for other, share := range s.Shares {
		if other != owner && share.Waits {
			left -= max(0, part-share.Share)
		}
	}
	return left
}

// begin grants begins, which may happen until g.At. A window with one of them also contains earlier begins whose time ended less than a window ago. A
// watcher shares with those that wait and had no more than it, and leaves one to each that had fewer.
func (s *LimitState) begin(ms int64, owner string, had int, a *Ask, g *Grant) {
	g.Begins = a.Begins
	if a.Rate == 0 {
		return
	}
	left, late := a.Rate, 1
	for _, b := range s.Begins {
		left -= b.N
	}
	for other, share := range s.Shares {
		if other == owner || !share.Late || share.Had > had {
			continue
		}
		late++
		if share.Had < had {
			left--
		}
	}
	g.Begins = min(a.Begins, (max(0, left)+late-1)/late)
	if g.Begins == 0 {
		return
	}
	part := max(1, a.Per.Milliseconds()/windowParts)
	g.At = ((ms+a.Use.Milliseconds())/part + 1) * part
	if i := slices.IndexFunc(s.Begins, func(b limitBegins) bool { return b.At == g.At }); i >= 0 {
		s.Begins[i].N += g.Begins
		return
	}
	s.Begins = append(s.Begins, limitBegins{g.At, g.Begins})
}

// limitRow is a row of feed_limits.
type limitRow struct {
	Gate    int `gorm:"primaryKey;autoIncrement:false"`
	State   string
	Version int64
}

func (limitRow) TableName() string { return "feed_limits" }

// Grant decides on asks, which are in the order of their gates, in one transaction. It returns a grant for each.
func (s *Store) Grant(ctx context.Context, t Terms, asks []Ask) (grants []Grant, err error) {
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		grants = make([]Grant, len(asks))
		for i := range asks {
			if err := s.Dialect.grant(tx, t, &asks[i], &grants[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return grants, err
}

// grant locks the row of a limit by a write. It reads the clock after that, because the write may have waited.
func (d *dialect) grant(tx *gorm.DB, t Terms, a *Ask, g *Grant) error {
	of := func() *gorm.DB { return tx.Table("feed_limits").Where("gate = ?", a.Gate) }
	lock := clause.OnConflict{
		Columns: []clause.Column{{Name: "gate"}}, DoUpdates: clause.Assignments(map[string]any{"version": gorm.Expr("feed_limits.version + 1")}),
	}
	if err := tx.Clauses(lock).Create(&limitRow{Gate: a.Gate}).Error; err != nil {
		return err
	}
	var text string
	var now RowTime
	if err := ScanRow(of().Select("state, "+d.Now), &text, &now); err != nil {
		return err
	}
	var state LimitState
	if text != "" {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			return fmt.Errorf("the row of gate %d in feed_limits cannot be read: %w", a.Gate, err)
		}
	}
	*g = state.Grant(now.Time, t, a)
	written, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return of().Update("state", string(written)).Error
}
