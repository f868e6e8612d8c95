package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Limit bounds what the watchers that have it do at a gate together.
type Limit struct {
	Gate        int
	Concurrency int // items begun and not saved, at most; 0: any
	Rate        int // items begun in any window of Per, at most; 0: any
	Per         time.Duration
}

// Ask is what a watcher needs of a limit. It is an absolute figure, so that one whose answer got lost does no harm.
type Ask struct {
	Limit
	Number int64 // grows with each ask of a watcher
	Keep   int   // the share that it does not give back now
	Demand int   // the share that it wants, at least Keep
	Begins int   // how many items it wants to begin within Use
	Use    time.Duration
	// BackAt is the At of a grant of which Back begins were not used and will not be.
	BackAt int64
	Back   int
	Leave  bool // the watcher ends
}

// Grant is the answer to an ask. If it grants less than was asked for, Wait is when more begins may be available.
type Grant struct {
	Share, Begins int
	At            int64
	Wait          time.Duration
}

// windowParts is in how many parts a window is counted: begins count for that part of it longer.
const windowParts = 100

// LimitState is the column state of feed_limits. Times are milliseconds of the database's clock.
type LimitState struct {
	Shares map[string]*limitShare `json:"shares"` // by owner
	Begins []limitBegins          `json:"begins"` // in the order of time
}

// limitShare is one watcher's.
type limitShare struct {
	Until  int64 `json:"until"`
	Number int64 `json:"number"`
	Share  int   `json:"share"`
	Waits  bool  `json:"waits"` // for a greater share
	Late   bool  `json:"late"`  // for more begins
	Limit  Limit `json:"limit"`
}

// limitBegins are begins that may be made until a time.
type limitBegins struct {
	At   int64 `json:"at"`
	N    int   `json:"n"`
	Gone int64 `json:"gone"` // when no window of a limit then known has them any more
}

// Grant decides about an ask at a time. An ask that was overtaken by a later one of its watcher is an error.
func (s *LimitState) Grant(now time.Time, t Terms, a *Ask) (Grant, error) {
	owner := t.Owner
	ms := now.UnixMilli()
	for other, share := range s.Shares {
		if share.Until < ms {
			delete(s.Shares, other)
		}
	}
	mine := s.Shares[owner]
	if mine == nil {
		mine = &limitShare{}
	}
	if a.Number <= mine.Number {
		return Grant{}, fmt.Errorf("%w: ask %d of a limit came after %d", ErrConflict, a.Number, mine.Number)
	}
	for i := range s.Begins {
		if b := &s.Begins[i]; b.At == a.BackAt {
			b.N = max(0, b.N-a.Back)
		}
	}
	s.Begins = slices.DeleteFunc(s.Begins, func(b limitBegins) bool { return b.N == 0 || b.Gone < ms })
	if a.Leave {
		delete(s.Shares, owner)
		return Grant{}, nil
	}
	had := mine.Share
	if s.Shares == nil {
		s.Shares = map[string]*limitShare{}
	}
	*mine = limitShare{Until: ms + t.Length.Milliseconds() + 1, Number: a.Number, Limit: a.Limit}
	s.Shares[owner] = mine
	var g Grant
	g.Share = max(0, min(a.Demand, s.free(owner, had)))
	mine.Share, mine.Waits = max(a.Keep, g.Share), g.Share < a.Demand
	s.begin(ms, owner, a, &g)
	mine.Late = g.Begins < a.Begins
	return g, nil
}

// free is how great a share can be: what the others have not, without the part of each that waits.
func (s *LimitState) free(owner string, had int) int {
	free := math.MaxInt
	for _, by := range s.Shares {
		if by.Limit.Concurrency > 0 {
			free = min(free, s.freeOf(by.Limit.Concurrency, owner, had))
		}
	}
	return free
}

func (s *LimitState) freeOf(concurrency int, owner string, had int) int {
	sharers, taken, without := 1, 0, false
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
		return 0 // there are more watchers than parts: one that had one leaves it to the next
	}
	for other, share := range s.Shares {
		if other != owner && share.Waits {
			left -= max(0, part-share.Share)
		}
	}
	return left
}

// begin grants begins, which may be made until g.At. A window that has one of them has those before it whose time was not over a
// window ago.
func (s *LimitState) begin(ms int64, owner string, a *Ask, g *Grant) {
	if a.Rate == 0 {
		g.Begins = a.Begins
		return
	}
	longest, left, late, first := time.Duration(0), a.Begins, 1, int64(0)
	for other, by := range s.Shares {
		if other != owner && by.Late {
			late++
		}
		longest = max(longest, by.Limit.Per)
		if n, since := s.left(ms, &by.Limit); n < left {
			left, first = max(0, n), since
		}
	}
	if left < a.Begins {
		g.Begins = (left + late - 1) / late
		if g.Begins == left && first > 0 {
			g.Wait = time.Duration(first-ms+1)*time.Millisecond + longest
		}
	} else {
		g.Begins = left
	}
	if g.Begins == 0 {
		return
	}
	part := max(1, a.Per.Milliseconds()/windowParts)
	g.At = ((ms+a.Use.Milliseconds())/part + 1) * part
	gone := g.At + longest.Milliseconds() + part
	if i := slices.IndexFunc(s.Begins, func(b limitBegins) bool { return b.At == g.At }); i >= 0 {
		s.Begins[i].N += g.Begins
		s.Begins[i].Gone = max(s.Begins[i].Gone, gone)
		return
	}
	s.Begins = append(s.Begins, limitBegins{g.At, g.Begins, gone})
	slices.SortFunc(s.Begins, func(x, y limitBegins) int { return cmp.Compare(x.At, y.At) })
}

// left is how many begins a limit leaves at a time, and when the first of its window were over.
func (s *LimitState) left(ms int64, l *Limit) (n int, first int64) {
	if l.Rate == 0 {
		return math.MaxInt, 0
	}
	n = l.Rate
	for _, b := range s.Begins {
		if b.At >= ms-l.Per.Milliseconds() {
			n -= b.N
			first = cmp.Or(first, b.At)
		}
	}
	return n, first
}

// limitRow is a row of feed_limits.
type limitRow struct {
	Gate    int `gorm:"primaryKey;autoIncrement:false"`
	State   string
	Version int64
}

// TableName is GORM's hook.
func (limitRow) TableName() string { return "feed_limits" }

// Limits is the table feed_limits.
type Limits struct{ store *Store }

// NewLimits are the limits of a store; false: its clock may stand still within a transaction, so it cannot have any.
func NewLimits(s *Store) (*Limits, bool) { return &Limits{s}, s.Dialect.Later != "" }

// Grant decides about asks, which are in the order of their gates, in one transaction.
func (l *Limits) Grant(ctx context.Context, t Terms, asks []Ask) (grants []Grant, err error) {
	err = l.store.Transact(ctx, func(tx *gorm.DB) error {
		grants = make([]Grant, len(asks))
		for i := range asks {
			if err := l.grantOne(tx, t, &asks[i], &grants[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return grants, err
}

// grantOne locks the row of a limit by a write. The clock is read after that, which may have waited.
func (l *Limits) grantOne(tx *gorm.DB, t Terms, a *Ask, g *Grant) error {
	of := func() *gorm.DB { return tx.Table("feed_limits").Where("gate = ?", a.Gate) }
	lock := func() (bool, error) {
		locked := of().Update("version", gorm.Expr("version + 1"))
		return locked.RowsAffected == 1, locked.Error
	}
	locked, err := lock()
	if err == nil && !locked {
		if err = tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&limitRow{Gate: a.Gate}).Error; err == nil {
			_, err = lock()
		}
	}
	if err != nil {
		return err
	}
	var text string
	var now RowTime
	if err := of().Select("state, "+l.store.Dialect.Now).Row().Scan(&text, &now); err != nil {
		return err
	}
	var state LimitState
	if text != "" {
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			return fmt.Errorf("the row of gate %d in feed_limits cannot be read: %w", a.Gate, err)
		}
	}
	if *g, err = state.Grant(now.Time, t, a); err != nil {
		return err
	}
	written, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return of().Update("state", string(written)).Error
}
