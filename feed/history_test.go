package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// event is what a watcher did, in the order of the log: "begin" of a handler, "end" of one that succeeded or
// "failed"; for each result "try" before the statement, then "wrote", "refused", or "unsaved" after an error, which have no gate.
type event struct {
	what, owner, partition, item string
	gate                         int
	version, epoch               int64
}

// change is a write that the database's triggers saw, with the lease that the partition had then. Those of a
// partition are in order.
type change struct {
	What            string // item, lease or partition
	PartitionID, ID string
	Gate            int
	Was, Status     string // of a lease: the owner before, and after
	Version, Epoch  int64
	Open            int // of a partition: items below its gate that are not Complete, or all such once it is Complete
}

// step is one version of an item at a gate: what a handler is called for once, unless there is a fault.
type step struct {
	partition, item string
	gate            int
	version         int64
}

func (e event) step() step { return step{e.partition, e.item, e.gate, e.version} }

// audit finds what must never be in a run whose watchers have that Concurrency and in which no operator changed items:
//
//   - an item that becomes Complete or Failed twice, or changes after that;
//   - a gate that opens, or a partition that closes, over an item that is not Complete;
//   - a handler at a gate while a step below it is to begin or to end for the first time;
//   - a step that begins twice under one lease, so that repeats are of what was in flight at the end of a lease;
//   - more in flight than Concurrency;
//   - a write under another lease than the one that the partition had.
//
// It also counts the repeats, and the leases that were taken from an owner, of which none may have more than Concurrency.
func audit(log []event, changes []change, concurrency int) (wrong []string, repeats, takeovers int) {
	a := auditor{wrote: map[step]int64{}, tried: map[step]map[int64]bool{}}
	repeats = a.handlers(log, concurrency)
	takeovers = a.writes(changes)
	if repeats > takeovers*concurrency {
		a.note("%d repeats for %d leases taken over with %d in flight each", repeats, takeovers, concurrency)
	}
	return a.wrong, repeats, takeovers
}

type auditor struct {
	wrong []string
	// By step, without its gate, which a write changes.
	wrote map[step]int64          // the epoch whose holder got the answer that it wrote
	tried map[step]map[int64]bool // the epochs whose holders tried
}

func (a *auditor) note(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
}

// handlers goes through the log.
func (a *auditor) handlers(log []event, concurrency int) (repeats int) {
	begun, ended := map[step]map[int64]bool{}, map[step]bool{}
	highest := map[string]int{} // the highest gate at which a handler began
	inFlight := map[string]map[step]bool{}
	for _, e := range log {
		st := e.step()
		unsaved := step{e.partition, e.item, 0, e.version}
		top, began := highest[e.partition]
		first := (e.what == "begin" && begun[unsaved] == nil) || ((e.what == "end" || e.what == "failed") && !ended[unsaved])
		if first && began && e.gate < top {
			a.note("%s of %v for the first time after a handler began at gate %d", e.what, st, top)
		}
		switch e.what {
		case "begin":
			if begun[unsaved] == nil {
				begun[unsaved] = map[int64]bool{}
			} else {
				repeats++
			}
			if begun[unsaved][e.epoch] {
				a.note("%v began twice under epoch %d", st, e.epoch)
			}
			begun[unsaved][e.epoch] = true
			highest[e.partition] = max(top, e.gate)
			if inFlight[e.owner] == nil {
				inFlight[e.owner] = map[step]bool{}
			}
			inFlight[e.owner][unsaved] = true
			if n := len(inFlight[e.owner]); n > concurrency {
				a.note("%s has %d in flight", e.owner, n)
			}
		case "end":
			ended[unsaved] = true
		case "failed":
			ended[unsaved] = true
			delete(inFlight[e.owner], unsaved)
		case "try":
			if a.tried[unsaved] == nil {
				a.tried[unsaved] = map[int64]bool{}
			}
			a.tried[unsaved][e.epoch] = true
		case "wrote", "refused", "unsaved":
			delete(inFlight[e.owner], unsaved)
			if e.what == "wrote" {
				if other, twice := a.wrote[unsaved]; twice {
					a.note("%v was written under epoch %d and %d", unsaved, other, e.epoch)
				}
				a.wrote[unsaved] = e.epoch
				// The next owner counts an attempt that it has not begun as one that ended with its process.
				ended[unsaved] = ended[unsaved] || !begun[unsaved][e.epoch]
			}
		}
	}
	return repeats
}

// writes goes through what the database saw.
func (a *auditor) writes(changes []change) (takeovers int) {
	epochs, over := map[string]int64{}, map[[2]string]bool{}
	for _, c := range changes {
		switch c.What {
		case "lease":
			if last, seen := epochs[c.PartitionID]; seen && c.Epoch != last+1 {
				a.note("partition %s: epoch %d after %d", c.PartitionID, c.Epoch, last)
			}
			epochs[c.PartitionID] = c.Epoch
			if c.Was != "" {
				takeovers++
			}
		case "partition":
			if c.Open > 0 {
				a.note("partition %s: %d open when it became %s at gate %d", c.PartitionID, c.Open, c.Status, c.Gate)
			}
		case "item":
			key := [2]string{c.PartitionID, c.ID}
			if over[key] {
				a.note("item %v became %s after its end", key, c.Status)
			}
			over[key] = c.Status != string(Available)
			before := step{c.PartitionID, c.ID, 0, c.Version - 1}
			if !a.tried[before][c.Epoch] {
				a.note("%v was written while epoch %d had the lease; tried by %v", before, c.Epoch, a.tried[before])
			}
			if by, known := a.wrote[before]; known && by != c.Epoch {
				a.note("%v was written by epoch %d while %d had the lease", before, by, c.Epoch)
			}
		}
	}
	return takeovers
}

// history is the history of a run on a real database: a file to which all processes append events, and a table.
type history struct {
	s           *Store
	path        string
	concurrency int
	log         *os.File

	read   []event
	offset int64
}

var historyTriggers = map[string][]string{
	"sqlite": {
		`CREATE TABLE history (n INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, partition_id TEXT, id TEXT, gate INTEGER, was TEXT, status TEXT,
			version INTEGER, epoch INTEGER, open INTEGER)`,
		`CREATE TRIGGER history_items AFTER UPDATE ON items BEGIN INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
			SELECT 'item', NEW.partition_id, NEW.id, NEW.gate, OLD.status, NEW.status, NEW.version, p.epoch, 0 FROM partitions p WHERE p.id = NEW.partition_id; END`,
		`CREATE TRIGGER history_leases AFTER UPDATE ON partitions WHEN NEW.epoch <> OLD.epoch BEGIN
			INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
			SELECT 'lease', NEW.id, '', NEW.gate, COALESCE(OLD.owner, ''), COALESCE(NEW.owner, ''), NEW.version, NEW.epoch, 0; END`,
		`CREATE TRIGGER history_partitions AFTER UPDATE ON partitions WHEN NEW.gate <> OLD.gate OR NEW.status <> OLD.status BEGIN
			INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
			SELECT 'partition', NEW.id, '', NEW.gate, OLD.status, NEW.status, NEW.version, NEW.epoch,
			(SELECT COUNT(*) FROM items i WHERE i.partition_id = NEW.id AND i.status <> 'Complete' AND (i.gate < NEW.gate OR NEW.status = 'Complete')); END`,
	},
	"postgres": {
		`CREATE TABLE history (n bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, what text, partition_id text, id text, gate bigint, was text, status text,
			version bigint, epoch bigint, open bigint)`,
		`CREATE FUNCTION history_item() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
			SELECT 'item', NEW.partition_id, NEW.id, NEW.gate, OLD.status, NEW.status, NEW.version, p.epoch, 0 FROM partitions p WHERE p.id = NEW.partition_id;
			RETURN NULL; END $$`,
		`CREATE TRIGGER history_items AFTER UPDATE ON items FOR EACH ROW EXECUTE FUNCTION history_item()`,
		`CREATE FUNCTION history_partition() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.epoch <> OLD.epoch THEN INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
				SELECT 'lease', NEW.id, '', NEW.gate, COALESCE(OLD.owner, ''), COALESCE(NEW.owner, ''), NEW.version, NEW.epoch, 0; END IF;
			IF NEW.gate <> OLD.gate OR NEW.status <> OLD.status THEN INSERT INTO history (what, partition_id, id, gate, was, status, version, epoch, open)
				SELECT 'partition', NEW.id, '', NEW.gate, OLD.status, NEW.status, NEW.version, NEW.epoch,
				(SELECT COUNT(*) FROM items i WHERE i.partition_id = NEW.id AND i.status <> 'Complete' AND (i.gate < NEW.gate OR NEW.status = 'Complete')); END IF;
			RETURN NULL; END $$`,
		`CREATE TRIGGER history_partitions AFTER UPDATE ON partitions FOR EACH ROW EXECUTE FUNCTION history_partition()`,
	},
}

// newHistory starts a history. Watchers of it have that Concurrency.
func newHistory(t *testing.T, s *Store, concurrency int) *history {
	t.Helper()
	for _, statement := range historyTriggers[s.sql.Dialect.Name] {
		require.NoError(t, s.sql.DB.Exec(statement).Error)
	}
	h := &history{s: s, path: filepath.Join(t.TempDir(), "log"), concurrency: concurrency}
	var err error
	h.log, err = appendTo(h.path)
	require.NoError(t, err)
	t.Cleanup(func() { h.log.Close() })
	return h
}

func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

func (h *history) note(e event) error { return e.write(h.log) }

// write appends the event in one call, so that the lines of several processes do not mix.
func (e event) write(log io.Writer) error {
	_, err := fmt.Fprintf(log, "%s %s %s %s %d %d %d\n", e.what, e.owner, e.partition, e.item, e.gate, e.version, e.epoch)
	return err
}

// watch runs a watcher that writes this history.
func (h *history) watch(t *testing.T, s *Store, p Processor, opts ...WatcherOption) *running {
	t.Helper()
	return start(t, recorded(s.sql, p, h.note, slices.Concat(quick(), opts, []WatcherOption{Concurrency(h.concurrency)})...))
}

// events is the log up to now.
func (h *history) events(t *testing.T) []event {
	t.Helper()
	f, err := os.Open(h.path)
	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, h.offset, 1<<40))
	require.NoError(t, err)
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may be being written
	h.offset += int64(len(text))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		require.Len(t, f, 7, line)
		e := event{what: f[0], owner: f[1], partition: f[2], item: f[3]}
		e.gate, err = strconv.Atoi(f[4])
		require.NoError(t, err)
		e.version, err = strconv.ParseInt(f[5], 10, 64)
		require.NoError(t, err)
		e.epoch, err = strconv.ParseInt(f[6], 10, 64)
		require.NoError(t, err)
		h.read = append(h.read, e)
	}
	return h.read
}

func (h *history) changes(t *testing.T) (list []change) {
	t.Helper()
	if historyTriggers[h.s.sql.Dialect.Name] != nil {
		require.NoError(t, h.s.sql.DB.Table("history").Order("n").Find(&list).Error)
	}
	return list
}

// count is how many events of a kind there are.
func (h *history) count(t *testing.T, what string) (n int) {
	t.Helper()
	for _, e := range h.events(t) {
		if e.what == what {
			n++
		}
	}
	return n
}

// audit fails the test for what must not be.
func (h *history) audit(t *testing.T) (repeats, takeovers int) {
	t.Helper()
	wrong, repeats, takeovers := audit(h.events(t), h.changes(t), h.concurrency)
	require.Empty(t, wrong)
	t.Logf("%d repeats, %d leases taken over", repeats, takeovers)
	return repeats, takeovers
}

// check is audit after all has ended: no item is Available.
func (h *history) check(t *testing.T) (repeats, takeovers int) {
	t.Helper()
	var open int64
	require.NoError(t, h.s.sql.DB.Table("items").Where("status = 'Available'").Count(&open).Error)
	require.Zero(t, open, "items that have not ended")
	return h.audit(t)
}

// witness is the tables with the events of one watcher.
type witness struct {
	engine.Tables
	note func(event) error

	mu     sync.Mutex
	leases map[step]event // under which an item was fetched
}

// recorded makes a watcher of which each event is noted.
func recorded(s engine.Tables, p Processor, note func(event) error, opts ...WatcherOption) *Watcher {
	r := &witness{Tables: s, note: note, leases: map[step]event{}}
	w := NewWatcher(nil, ProcessorFunc(func(ctx context.Context, it Item) (Response, error) {
		r.mu.Lock()
		e := r.leases[step{it.Partition, it.ID, it.Gate, it.Version}]
		r.mu.Unlock()
		e.what = "begin"
		if err := r.note(e); err != nil {
			return Response{}, err
		}
		resp, err := p.Process(ctx, it)
		if e.what = "end"; err != nil {
			e.what = "failed"
		}
		return resp, errors.Join(err, r.note(e))
	}), opts...)
	w.tables = r
	return w
}

func (r *witness) Fetch(ctx context.Context, t sqlstore.Terms, wants []sqlstore.Want) ([]sqlstore.Item, error) {
	items, err := r.Tables.Fetch(ctx, t, wants)
	r.mu.Lock()
	defer r.mu.Unlock()
	epochs := map[string]int64{}
	for _, w := range wants {
		epochs[w.ID] = w.Epoch
	}
	for _, it := range items {
		r.leases[step{it.PartitionID, it.ID, it.Gate, it.Version}] = event{
			owner: t.Owner, partition: it.PartitionID, item: it.ID, gate: it.Gate, version: it.Version, epoch: epochs[it.PartitionID],
		}
	}
	return items, err
}

func (r *witness) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	note := func(what string, res sqlstore.Result) error {
		return r.note(event{what, t.Owner, res.ID, res.Item, 0, res.Version, res.Epoch})
	}
	for _, res := range results {
		if err := note("try", res); err != nil {
			return nil, err
		}
	}
	saved, err := r.Tables.Save(ctx, t, results)
	if err != nil {
		for _, res := range results { // it may be tried again, or be given up with its lease
			err = errors.Join(err, note("unsaved", res))
		}
		return saved, err
	}
	for i, res := range results {
		what := "refused"
		if saved[i] {
			what = "wrote"
		}
		if err := note(what, res); err != nil {
			return nil, err
		}
		if saved[i] && res.Status == sqlstore.Available { // as after the begin of an attempt was stored, the item may be processed as it was written
			r.mu.Lock()
			lease := r.leases[step{res.ID, res.Item, res.Gate, res.Version}]
			lease.version++
			r.leases[lease.step()] = lease
			r.mu.Unlock()
		}
	}
	return saved, nil
}
