package view

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
)

// Page is the content of one page.
type Page struct {
	// Nav is the entry of the navigation that the page belongs to.
	Nav    string
	Title  string
	Crumbs []Link
	// Filter is the form above the page's list; nil: there is none.
	Filter *Filter
	Parts  []Part
	// Download is sent in place of a page; nil: there is a page.
	Download *Download
	// Static pages show something that does not change, such as a stored message. They have no stream of events.
	Static bool
}

// Action is the action of a name; nil: no part of the page has one. Actions of the same name differ in their hidden fields only.
func (p *Page) Action(name string) *Action {
	for _, part := range p.Parts {
		for i := range part.Actions {
			if part.Actions[i].Name == name {
				return &part.Actions[i]
			}
		}
	}
	return nil
}

// Tone is the worst of the page's parts and their sources. A part is not known while its source does not answer.
func (p *Page) Tone() Tone {
	worst := []Tone{Bad, Muted, Warn, Good, Plain}
	found := len(worst) - 1
	for _, part := range p.Parts {
		tone := part.ProblemTone
		if part.Unknown() || part.Source.Stale {
			tone = Muted
		}
		found = min(found, slices.Index(worst, tone), slices.Index(worst, part.Source.Tone))
	}
	return worst[found]
}

// Heading is the title in the browser's tab, with the page's state.
func (p *Page) Heading() string {
	return map[Tone]string{Bad: "In trouble: ", Muted: "Not known: ", Warn: "To look at: "}[p.Tone()] + p.Title + " – jetpull"
}

// Icon is the page's icon, with the colour of its state.
func (p *Page) Icon() string {
	switch tone := p.Tone(); tone {
	case Bad, Warn, Muted:
		return "static/icon-" + string(tone) + ".svg"
	}
	return "static/icon.svg"
}

// Download is a file.
type Download struct {
	Name string
	Data []byte
}

// Link leads to another page. Href is relative to the console's root.
type Link struct{ Text, Href string }

// Part is one section of a page. It shows the data of one source, so that a source that does not answer affects nothing else.
type Part struct {
	ID, Title string
	// Problem is what is wrong with the part's object, in one sentence; empty: nothing is known to be wrong.
	Problem     string
	ProblemTone Tone
	// Source is how old the part's data is, and why it is not newer.
	Source Source
	Lines  []string
	Facts  []Fact
	Charts []chart.Chart
	List   *List
	Texts  []Block
	// Actions are what can be done to the object of this part, or to all objects that its list's filter matches.
	Actions []Action
}

// Unknown reports whether the part's source has not answered yet. Then the part shows nothing of it: no list is empty because nobody has read it.
func (p Part) Unknown() bool { return p.Source.Name != "" && p.Source.Asked.IsZero() }

// Source states how current the data of a part is.
type Source struct {
	Name string
	// Asked is when the source last answered. Zero: it has not answered yet.
	Asked time.Time
	// Stale data is older than it should be. Error states why, where a reason is known.
	Stale bool
	Error string
	// Refused states that the source refuses the console's token.
	Refused bool
	// Problem is what is wrong with the source itself, in one sentence; empty: nothing is known to be wrong. Tone is how urgent that is.
	Problem string
	Tone    Tone
}

// Away is the source after an error.
func (s Source) Away(err error) Source {
	s.Error, s.Refused = err.Error(), errors.Is(err, fs.ErrPermission)
	return s
}

// Does states what the source does instead of sending data.
func (s Source) Does() string {
	if s.Refused {
		return "refuses the token of the console"
	}
	return "does not answer"
}

// Fact is a named value.
type Fact struct {
	Name  string
	Value Value
}

// Block is a longer text, such as a payload.
type Block struct {
	Title string
	Text  string
	// Fold is shown in place of Text; nil: Text is.
	Fold *Folded
	// Note is a remark on the text, such as that it was cut.
	Note string
	// Links lead to other ways to show the text, or to a download.
	Links []Link
}

// Column is a column of a list.
type Column struct {
	Title string
	// Number aligns the column to the right.
	Number bool
	// Sort is the value of the parameter "sort" that orders the list by this column; empty: it cannot be ordered by it.
	Sort string
	// Wide columns take the whole width of a narrow screen.
	Wide bool
	// Help is the title of the heading.
	Help string
}

// Columns are those of a list, from left to right. The title of one with numbers is given with ">" before it, and that of a wide one with "*".
func Columns(titles ...string) (all []Column) {
	for _, title := range titles {
		all = append(all, Column{Title: strings.TrimLeft(title, ">*"), Number: title[0] == '>', Wide: title[0] == '*'})
	}
	return all
}

// Row is an object of a list. Its ID is unique on the page. It is no ID of an element: a live list changes what is in its rows, and moves no row.
type Row struct {
	ID    string
	Cells []Value
}

// List is a table of objects.
type List struct {
	Columns []Column
	Rows    []Row
	// Found is how many objects the filter matches, such as "10,000+ messages".
	Found string
	// Empty states what the list would contain, and how to get it there.
	Empty string
	// Sorted is the column that the list is ordered by, and Descending its direction.
	Sorted     string
	Descending bool
	// Query is the query of the list's page. Links to another order or another page change it.
	Query url.Values
	Path  string
	// Previous and Next are the parameters of the adjacent pages; nil: there is none.
	Previous, Next url.Values
	// Links lead to other parts of the list.
	Links []Link
}

// Add adds a row.
func (l *List) Add(id string, cells ...Value) {
	l.Rows = append(l.Rows, Row{ID: id, Cells: cells})
}

// Option is a choice of a field.
type Option struct{ Value, Text string }

// Field is an input of a form.
type Field struct {
	Name, Label, Value string
	// Options make the field a choice.
	Options []Option
	// Type is that of the input; empty: text. The value of a password is not written.
	Type        string
	Placeholder string
	Required    bool
	Hidden      bool
}

// Filter is the form that narrows a list. Its fields are in the page's URL.
type Filter struct {
	Path   string
	Fields []Field
}

// Outcome is how an action ended.
type Outcome struct {
	// Text states the outcome in words. For an action that half of its objects refused it states what happened to the rest.
	Text string
	// Count is the number of objects that were changed.
	Count int
	// Then is the page to show next, relative to the console's root; empty: the page that the action belongs to.
	Then string
}

// Do carries out an action with the fields of its form.
type Do func(ctx context.Context, form url.Values) (Outcome, error)

// Action changes something. It is a form that is sent to the URL of its page.
type Action struct {
	// Name is the value of the form's field "do". It is unique on the page.
	Name  string
	Label string
	// Target is the object of the action in the log of actions.
	Target string
	Fields []Field
	// Confirm states what will happen, with the number of objects. An action with it is confirmed on a page of its own.
	Confirm string
	// Preview adds to Confirm what takes a moment to find out, such as a count of all objects that the form selects; nil: nothing.
	Preview func(ctx context.Context, form url.Values) string
	// Danger marks an action that cannot be undone.
	Danger bool
	// Word is what a user has to type before the action is carried out; empty: nothing.
	Word string
	Do   Do
}

// Filled is the action with what a user has typed in its fields.
func (a *Action) Filled(form url.Values) *Action {
	filled := *a
	filled.Fields = slices.Clone(a.Fields)
	for i, f := range filled.Fields {
		filled.Fields[i].Value = form.Get(f.Name)
	}
	return &filled
}

// Entry is a line of the log of actions.
type Entry struct {
	Time    time.Time
	Who     string
	Action  string
	Target  string
	Count   int
	Outcome string
	Failed  bool
}
