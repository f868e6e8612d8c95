package page

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/partition"
)

// PartitionSet is a set of package partition.
type PartitionSet struct {
	Name, Stream, Subject string
	// TTL is how long a member can be silent before it is gone.
	TTL        time.Duration
	Partitions []partition.Partition
	// Err is why the partitions are not known; nil: they are.
	Err error
}

// PartitionSource reads the sets of partitions of an account.
type PartitionSource interface {
	// PartitionSets are all sets, or the one of a name. [jetstream.ErrBucketNotFound]: there is none of this name.
	PartitionSets(ctx context.Context, name string) ([]PartitionSet, error)
}

// Partitions are the pages of the sets of partitions, which ask their source themselves. The overview has a sample.
type Partitions struct {
	source PartitionSource
	latest *sample.Latest[setSample]
	// before are the sets of the last sample. Only the sampler's goroutine uses it.
	before setSample
	// consumers are the states of all consumers by key. A consumer that is not known has none.
	consumers func(context.Context) map[string]state.State

	mu   sync.Mutex
	free map[string]time.Time // when a partition was first seen without an owner, by the key of its consumer
}

// setsEvery is how often the sets are read for the overview, since this reads their whole buckets.
const setsEvery = 10 * time.Second

// setSample are all sets at a time.
type setSample struct {
	begun, at time.Time
	all       []judgedSet
}

// judgedSet is a set with its state, how many messages wait and are with members, and how many partitions each member has.
type judgedSet struct {
	PartitionSet
	state               state.State
	since               since
	pending, ackPending uint64
	members             map[string]int
}

// NewPartitions makes the pages, and has the sampler ask their source. A partition is judged as its consumer.
func NewPartitions(s *sample.Sampler, source PartitionSource, consumers *Consumers) *Partitions {
	p := &Partitions{source: source, free: map[string]time.Time{}, consumers: consumers.states}
	p.latest = sample.Add(s, p.ask)
	return p
}

func (p *Partitions) ask(ctx context.Context) (setSample, error) {
	if time.Since(p.before.begun) < setsEvery {
		return p.before, nil
	}
	begun := time.Now()
	sets, err := p.source.PartitionSets(ctx, "")
	if err != nil {
		return setSample{}, err
	}
	next := setSample{begun: begun, at: time.Now()}
	next.all = p.judged(ctx, sets, next.at)
	for i, one := range next.all {
		next.all[i].since = since{next.at, p.before.at.IsZero()}
		n := slices.IndexFunc(p.before.all, func(b judgedSet) bool { return b.Name == one.Name && b.state.Word == one.state.Word })
		if n >= 0 {
			next.all[i].since = p.before.all[n].since
		}
	}
	p.before = next
	return next, nil
}

func (p *Partitions) judged(ctx context.Context, sets []PartitionSet, now time.Time) (all []judgedSet) {
	for _, s := range sets {
		all = append(all, p.judge(ctx, s, now))
	}
	return all
}

func worstSet(a, b judgedSet) int {
	return cmp.Or(cmp.Compare(a.state.Level, b.state.Level), cmp.Compare(a.Name, b.Name))
}

// Pages are the functions of the pages by their paths.
func (p *Partitions) Pages() map[string]Func { return map[string]Func{"sets": p.list, "set": p.one} }

func (s judgedSet) linked() view.Value { return view.Linked(s.Name, link("set", "name", s.Name)) }

func (s *PartitionSet) stream() view.Value {
	return view.Linked(s.Stream, link("messages", "stream", s.Stream))
}

// judge judges a set with the states of its consumers.
func (p *Partitions) judge(ctx context.Context, set PartitionSet, now time.Time) judgedSet {
	s := judgedSet{PartitionSet: set, members: map[string]int{}}
	for _, one := range s.Partitions {
		s.pending, s.ackPending = s.pending+one.Pending, s.ackPending+one.AckPending
		if one.Member != "" {
			s.members[one.Member]++
		}
	}
	v := state.Set{TTL: s.TTL, Pending: s.pending, Counts: slices.Collect(maps.Values(s.members))}
	if s.Err != nil {
		v.Err = s.Err.Error()
	}
	consumers := p.consumers(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range s.Partitions {
		key := s.consumer(one.Number)
		judged := state.Partition{Number: one.Number, Consumer: consumers[key]}
		switch seen, ok := p.free[key]; {
		case one.Member != "":
			delete(p.free, key)
		case ok:
			judged.Free = max(1, now.Sub(seen))
		default:
			p.free[key], judged.Free = now, 1
		}
		v.Partitions = append(v.Partitions, judged)
	}
	s.state = v.Of()
	return s
}

// consumer is the key of the consumer of a partition.
func (s *PartitionSet) consumer(number int) string {
	return s.Stream + "/" + s.Name + "-" + strconv.Itoa(number)
}

// setColumns are those of the list. The page of a set has the values from the third on.
var setColumns = []column[judgedSet]{
	text("Set", judgedSet.linked),
	text("State", func(s judgedSet) view.Value { return s.state.Value() }).by("state", worstSet),
	text("Stream", func(s judgedSet) view.Value { return s.stream() }),
	text("Subject", func(s judgedSet) view.Value { return view.Text(s.Subject) }).wide(),
	number("Partitions", func(s judgedSet) view.Value { return view.Int(len(s.Partitions)) }),
	number("Members", func(s judgedSet) view.Value { return view.Int(len(s.members)) }),
	number("Pending", func(s judgedSet) view.Value { return view.Number(s.pending) }),
	number("Ack pending", func(s judgedSet) view.Value { return view.Number(s.ackPending) }),
}

func (p *Partitions) list(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	sets, err := p.source.PartitionSets(ctx, "")
	part := view.Part{ID: "sets", Source: reading("NATS", r, err)}
	rows := selected(q, p.judged(ctx, sets, r.Now), func(q url.Values, s judgedSet) bool { return contains(q.Get("q"), s.Name, s.Stream) })
	part.List = &view.List{
		Path: "sets", Empty: "This list shows sets of partitions, of which each has one member at a time; partition.Open makes one.",
	}
	table(part.List, q, rows, "state", len(sets), "set", func(s judgedSet) string { return "s-" + s.Name }, setColumns)
	return &view.Page{
		Nav: "sets", Title: "Partition sets",
		Filter: &view.Filter{Path: "sets", Fields: []view.Field{searchField(q, "q", "Set or stream", "name")}},
		Parts:  []view.Part{part},
	}, nil
}

func (p *Partitions) one(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	sets, err := p.source.PartitionSets(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound), err == nil && len(sets) == 0:
		return nil, notFound("The list of sets shows all that there are.", "There is no set %q.", name)
	case err != nil:
		return nil, unavailable(err, "Try again. If it stays so, look at the server.", "The state of set %q is not known now", name)
	}
	s := p.judge(ctx, sets[0], r.Now)
	states := p.consumers(ctx)
	list := &view.List{
		Found: view.Bounded(len(s.Partitions), false, "partition"), Path: "set", Query: r.Query, Empty: "The partitions are not known now.",
		Columns: view.Texts("Partition", "State", "Member").Numbers("Since", "Pending", "Ack pending"),
	}
	for _, one := range s.Partitions {
		n := strconv.Itoa(one.Number)
		member := view.None("No member has this partition now")
		if one.Member != "" {
			member = view.Code(one.Member)
		}
		list.Add("p-"+n,
			view.Linked(n, link("consumer", "stream", s.Stream, "name", s.Name+"-"+n)), states[s.consumer(one.Number)].Value(), member,
			view.Ago(one.Since, "No member has it"),
			view.Number(one.Pending), view.Number(one.AckPending))
	}
	return &view.Page{
		Nav: "sets", Title: name, Crumbs: []view.Link{{Text: "Partition sets", Href: "sets"}},
		Parts: []view.Part{{
			ID: "set", Source: view.Source{Name: "NATS", Asked: r.Now}, Problem: s.state.Sentence, ProblemTone: s.state.Level.Tone(), List: list,
			Facts: append(facts(s, setColumns[2:]),
				view.Fact{Name: "A silent member is gone after", Value: view.Duration(s.TTL)}),
		}},
	}, nil
}
