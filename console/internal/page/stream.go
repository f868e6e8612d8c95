package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/systems"
)

// The values of a stream's history.
const (
	histMessages = iota
	histBytes
	histStored
	streamWidth
)

// judgedStream is a stream with its state, and a meter of the messages that are stored in it.
type judgedStream struct {
	*jetstream.StreamInfo
	state  state.State
	since  since
	stored meter
}

func byStream(a, b judgedStream) int { return cmp.Compare(a.Config.Name, b.Config.Name) }

func worstStream(a, b judgedStream) int {
	return cmp.Or(cmp.Compare(a.state.Level, b.state.Level), byStream(a, b))
}

// ask reads all streams, determines their states, and measures their growth.
func (m *Messages) ask(ctx context.Context) ([]judgedStream, error) {
	infos, err := m.source.Streams(ctx)
	if err != nil {
		return nil, err
	}
	now, all, known := time.Now(), make([]judgedStream, len(infos)), map[string]judgedStream{}
	for i, info := range infos {
		name := info.Config.Name
		before := m.before[name]
		one := judgedStream{info, state.Stream(info.Cluster), since{now, m.before == nil}, before.stored}
		if before.state.Word == one.state.Word {
			one.since = before.since
		}
		if one.known() {
			one.stored = before.stored.plus(now, info.State.LastSeq)
			m.history.Put(now, name, float64(info.State.Msgs), float64(info.State.Bytes), one.stored.rate)
		}
		all[i], known[name] = one, one
	}
	slices.SortFunc(all, byStream)
	m.before = known
	return all, nil
}

// streamKind returns what a stream is used as, and its name as that.
func streamKind(info *jetstream.StreamInfo) (kind, name string) {
	name = info.Config.Name
	if bucket, ok := strings.CutPrefix(name, "KV_"); ok && slices.Contains(info.Config.Subjects, "$KV."+bucket+".>") {
		return "key-value bucket", bucket
	}
	if bucket, ok := strings.CutPrefix(name, "OBJ_"); ok && slices.Contains(info.Config.Subjects, "$O."+bucket+".C.>") {
		return "object store", bucket
	}
	return "stream", name
}

// internal reports whether a stream belongs to a system or to the server. Such streams are hidden unless a user asks for them.
func internal(info *jetstream.StreamInfo) bool {
	return strings.HasPrefix(info.Config.Name, "$") || systems.OfStream(info.Config.Name, info.Config.Subjects) != ""
}

// internal reports whether a stream in the last sample is internal.
func (m *Messages) internal(stream string) bool {
	all := m.latest.Get().Value
	i, found := slices.BinarySearchFunc(all, stream, func(s judgedStream, name string) int { return cmp.Compare(s.Config.Name, name) })
	return found && internal(all[i].StreamInfo)
}

// known reports whether a server knows what the stream has now.
func (s judgedStream) known() bool { return !state.Leaderless(s.Cluster) }

var streamColumns = append([]column[judgedStream]{
	text("Stream", func(info judgedStream) view.Value {
		_, name := streamKind(info.StreamInfo)
		return view.Linked(name, link("messages", "stream", info.Config.Name))
	}).by("name", byStream),
	text("Kind", func(info judgedStream) view.Value {
		kind, _ := streamKind(info.StreamInfo)
		return view.Linked(kind, link("stream", "name", info.Config.Name))
	}).help("It leads to the configuration and the state of the stream"),
	text("State", func(info judgedStream) view.Value { return info.state.Value() }).by("state", worstStream),
	text("Subjects", func(info judgedStream) view.Value {
		return view.Text(strings.Join(info.Config.Subjects, ", "))
	}).wide(),
}, ifKnown(judgedStream.known,
	count("Messages", "messages", func(info judgedStream) uint64 { return info.State.Msgs }),
	number("Size", func(info judgedStream) view.Value { return view.Bytes(info.State.Bytes) }).
		by("bytes", func(a, b judgedStream) int { return cmp.Compare(a.State.Bytes, b.State.Bytes) }),
	number("Consumers", func(info judgedStream) view.Value {
		return leads(view.Int(info.State.Consumers), link("consumers", "stream", info.Config.Name))
	}).by("consumers", func(a, b judgedStream) int { return cmp.Compare(a.State.Consumers, b.State.Consumers) }),
	number("Oldest message", func(info judgedStream) view.Value { return place(info, info.State.FirstSeq, info.State.FirstTime) }),
	number("Newest message", func(info judgedStream) view.Value { return place(info, info.State.LastSeq, info.State.LastTime) }).
		by("last", func(a, b judgedStream) int { return a.State.LastTime.Compare(b.State.LastTime) }),
)...)

// place returns a link to a message of a stream.
func place(info judgedStream, seq uint64, at time.Time) view.Value {
	if info.State.Msgs == 0 {
		return view.None("There is no message")
	}
	v := leads(view.Ago(at, "There is no message"), messageLink(info.Config.Name, seq).Href)
	v.Prefix = strconv.FormatUint(seq, 10) + ", "
	return v
}

// streamList is the list of streams. It hides internal ones, unless a user asks for them or an operator must look at them.
var streamList = &objects[judgedStream]{
	noun: "stream", name: func(s judgedStream) string { return s.Config.Name },
	fits: func(q url.Values, s judgedStream) bool {
		return contains(q.Get("q"), s.Config.Name, strings.Join(s.Config.Subjects, " ")) &&
			(q.Get("all") != "" || s.state.Trouble() || !internal(s.StreamInfo))
	},
}

func (m *Messages) streams(ctx context.Context, r Request) (*view.Page, error) {
	s, list := m.latest.Fresh(ctx), &view.List{
		Path: "streams", Empty: "This list shows the streams of the account. Create one with the command nats stream add.",
	}
	return streamList.page(r, "Messages", source("NATS", s), list, s.Value, streamColumns,
		searchField(r.Query, "q", "Stream or subject", "name or subject"), internalField(r.Query)), nil
}

// stream shows everything about a stream except its messages.
func (m *Messages) stream(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	info, err := m.source.Stream(ctx, name)
	if err != nil {
		return nil, streamError(name, err)
	}
	_, title := streamKind(info)
	c, st := info.Config, info.State
	values := func(i int) chart.Series { return r.values(m.history, name, i) }
	one := judgedStream{StreamInfo: info, state: state.Stream(info.Cluster)}
	part := view.Part{
		ID: "stream", Source: view.Source{Name: "NATS", Asked: r.Now}, Problem: one.state.Sentence, ProblemTone: one.state.Level.Tone(),
		Facts: append(facts(one, streamColumns),
			view.Fact{Name: "Deleted between them", Value: view.Int(st.NumDeleted)},
			view.Fact{Name: "Retention", Value: view.Text(c.Retention.String())},
			view.Fact{Name: "Limits", Value: view.Text(cmp.Or(strings.Join(inWords("limits", c), ", "), "none"))},
			view.Fact{Name: "Replicas", Value: view.Int(c.Replicas)},
			view.Fact{Name: "Created", Value: view.Ago(info.Created, "The server did not state it")}),
		Charts: []chart.Chart{
			chart.Large("Messages", "messages", values(histMessages)), chart.Large("Size", "bytes", values(histBytes)),
			chart.Large("Stored in a second", "", values(histStored)),
		},
	}
	page := &view.Page{Nav: "streams", Title: title, Crumbs: []view.Link{{Text: "Messages", Href: "streams"}}, Parts: []view.Part{part}}
	if info.Cluster != nil && len(info.Cluster.Replicas) > 0 {
		page.Parts = append(page.Parts, replicas(info.Cluster))
	}
	text, err := json.MarshalIndent(c, "", "  ") // it has the names of NATS
	configuration, _ := printable(text, maxShown)
	page.Parts = append(page.Parts, m.consumersOf(ctx, r, name), m.subjects(ctx, info), view.Part{
		ID: "configuration", Title: "Configuration", Texts: []view.Block{{Title: "As JSON", Text: configuration}},
	})
	return page, err
}

func replicas(c *jetstream.ClusterInfo) view.Part {
	list := &view.List{
		Found: view.Count(uint64(len(c.Replicas)), "replica") + " beside the leader, " + cmp.Or(c.Leader, "which is not known"), Path: "stream",
		Columns: view.Columns("Server", "State", ">Behind by", ">Last seen"),
	}
	for i, peer := range c.Replicas {
		list.Add("peer-"+strconv.Itoa(i),
			view.Text(peer.Name), state.Replica(peer).Value(), view.Number(peer.Lag), view.Duration(peer.Active.Round(time.Second)))
	}
	return view.Part{ID: "replicas", Title: "Replicas", List: list}
}

// consumersOf has the order and the next page of the list of consumers.
func (m *Messages) consumersOf(ctx context.Context, r Request, stream string) view.Part {
	all, known := m.consumers.audience(ctx)
	rows := slices.DeleteFunc(slices.Clone(all), func(one *consumer) bool { return one.Stream != stream })
	list := &view.List{Path: "consumers", Empty: "No consumer delivers its messages."}
	if !known {
		list.Empty = "Its consumers are not known now."
	}
	columns := m.consumers.columns(r.Now)
	table(list, url.Values{"stream": {stream}}, rows, "state", 0, "consumer", func(one *consumer) string { return "c-" + one.key },
		append(columns[1:3:3], columns[4], columns[10]))
	return view.Part{ID: "consumers", Title: "Consumers", List: list}
}

// mostSubjects is how many subjects of a stream are counted.
const mostSubjects = 10_000

func (m *Messages) subjects(ctx context.Context, info *jetstream.StreamInfo) view.Part {
	part := view.Part{ID: "subjects", Title: "Messages of each subject"}
	if n := info.State.NumSubjects; n > mostSubjects {
		part.Lines = []string{fmt.Sprintf("The stream has %s, which are not counted. The list of messages counts those of one.", view.Count(n, "subject"))}
		return part
	}
	counts, err := m.source.Subjects(ctx, info.Config.Name, ">")
	if err != nil {
		part.Lines = []string{"How many messages each subject has is not known now: " + err.Error()}
		return part
	}
	part.List = &view.List{
		Found: view.Bounded(len(counts), false, "subject") + ", those with the most messages first", Path: "stream", Empty: "There is no message.",
		Columns: view.Columns("*Subject", ">Messages"),
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	for _, subject := range names[:min(len(names), pageSize)] {
		part.List.Add("subject-"+subject, view.Linked(subject, link("messages", "stream", info.Config.Name, "subject", subject)),
			view.Number(counts[subject]))
	}
	return part
}

// internalField shows what is hidden.
func internalField(q url.Values) view.Field {
	return choice(q, "all", "Internal", options("", "hidden", "1", "shown"))
}
