package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// Partitions are the pages of the sets of partitions. Their source is asked while one of them is open only.
type Partitions struct{ source PartitionSource }

// NewPartitions makes the pages.
func NewPartitions(source PartitionSource) *Partitions { return &Partitions{source} }

// Pages are the functions of the pages by their paths.
func (p *Partitions) Pages() map[string]Func { return map[string]Func{"sets": p.list, "set": p.one} }

// count returns how many messages wait, how many are with members, and how many partitions have no member.
func (s *PartitionSet) count() (pending, ackPending uint64, free int, members map[string]int) {
	members = map[string]int{}
	for _, one := range s.Partitions {
		pending, ackPending = pending+one.Pending, ackPending+one.AckPending
		if one.Member == "" {
			free++
		} else {
			members[one.Member]++
		}
	}
	return pending, ackPending, free, members
}

func (s *PartitionSet) judge() state {
	pending, ackPending, free, members := s.count()
	waiting := countWait(pending)
	switch {
	case s.Err != nil:
		return state{"not known", view.Bad, "The state of the partitions is not known: " + s.Err.Error()}
	case len(members) == 0 && pending+ackPending > 0:
		return state{"no member", view.Bad, "No member works on the partitions, and " + waiting + "."}
	case len(members) == 0:
		return state{"no member", view.Plain, "No member works on the partitions. Nothing waits."}
	case free > 0:
		return state{"changing", view.Warn, fmt.Sprintf("%s without a member: they are passed on, or no member takes them; %s.",
			countIs(uint64(free), "partition"), waiting)}
	}
	return state{"working", view.Good, fmt.Sprintf("Each partition has a member; %s.", waiting)}
}

func (p *Partitions) list(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	sets, err := p.source.PartitionSets(ctx, "")
	part := view.Part{ID: "sets", Source: view.Source{Name: "NATS", Asked: r.Now}}
	if err != nil {
		part.Source = view.Source{Name: "NATS"}.Away(err)
	}
	sets = slices.DeleteFunc(sets, func(s PartitionSet) bool { return !contains(q.Get("q"), s.Name, s.Stream) })
	slices.SortFunc(sets, func(a, b PartitionSet) int {
		return cmp.Or(cmp.Compare(a.judge().severity(), b.judge().severity()), cmp.Compare(a.Name, b.Name))
	})
	shown, previous, next := slice(q, sets)
	part.List = &view.List{
		Found: view.Bounded(len(sets), false, "set"), Path: "sets", Query: q, Previous: previous, Next: next,
		Empty: "No set matches. This list shows sets of partitions, of which each has one member at a time; partition.Open makes one.",
		Columns: []view.Column{
			{Title: "Set"},
			{Title: "State"},
			{Title: "Stream"},
			{Title: "Subject", Wide: true},
			{Title: "Partitions", Number: true},
			{Title: "Members", Number: true},
			{Title: "Pending", Number: true},
			{Title: "Ack pending", Number: true},
		},
	}
	for i, s := range shown {
		pending, ackPending, _, members := s.count()
		part.List.Rows = append(part.List.Rows, view.Row{ID: "s-" + strconv.Itoa(i) + "-" + s.Name, Cells: []view.Value{
			view.Linked(s.Name, link("set", "name", s.Name)), s.judge().value(), view.Linked(s.Stream, link("messages", "stream", s.Stream)),
			view.Text(s.Subject),
			view.Int(len(s.Partitions)), view.Int(len(members)), view.Number(pending), view.Number(ackPending),
		}})
	}
	return &view.Page{
		Nav: "sets", Title: "Partitions",
		Filter: &view.Filter{Path: "sets", Fields: []view.Field{{
			Name: "q", Label: "Set or stream", Value: q.Get("q"), Type: "search",
			Placeholder: "name",
		}}},
		Parts: []view.Part{part},
	}, nil
}

func (p *Partitions) one(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	sets, err := p.source.PartitionSets(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound), err == nil && len(sets) == 0:
		return nil, notFound("The list of sets shows all that there are.", "There is no set %q.", name)
	case err != nil:
		return nil, &Problem{
			Status: http.StatusBadGateway, Text: fmt.Sprintf("The state of set %q is not known now", name), Err: err,
			Fix: "Try again. If it stays so, look at the server.",
		}
	}
	s := sets[0]
	pending, ackPending, _, members := s.count()
	st := s.judge()
	list := &view.List{
		Found: view.Bounded(len(s.Partitions), false, "partition"), Path: "set", Query: r.Query, Empty: "The partitions are not known now.",
		Columns: []view.Column{
			{Title: "Partition"},
			{Title: "Member"},
			{Title: "Since", Number: true},
			{Title: "Pending", Number: true},
			{Title: "Ack pending", Number: true},
		},
	}
	for _, one := range s.Partitions {
		n := strconv.Itoa(one.Number)
		member := view.None("No member has this partition now")
		if one.Member != "" {
			member = view.Code(one.Member)
		}
		list.Rows = append(list.Rows, view.Row{ID: "p-" + n, Cells: []view.Value{
			view.Linked(n, link("consumer", "stream", s.Stream, "name", s.Name+"-"+n)), member, view.Ago(one.Since, "No member has it"),
			view.Number(one.Pending), view.Number(one.AckPending),
		}})
	}
	return &view.Page{
		Nav: "sets", Title: name, Crumbs: []view.Link{{Text: "Partitions", Href: "sets"}},
		Parts: []view.Part{{
			ID: "set", Source: view.Source{Name: "NATS", Asked: r.Now}, Problem: st.sentence, ProblemTone: st.tone, List: list,
			Facts: []view.Fact{
				{Name: "Stream", Value: view.Linked(s.Stream, link("messages", "stream", s.Stream))},
				{Name: "Subject", Value: view.Text(s.Subject)},
				{Name: "Members", Value: view.Int(len(members))},
				{Name: "Pending", Value: view.Number(pending)},
				{Name: "Ack pending", Value: view.Number(ackPending)},
				{Name: "A silent member is gone after", Value: view.Duration(s.TTL)},
			},
		}},
	}, nil
}
