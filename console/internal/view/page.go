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
	// Nav is the page's entry in the navigation.
	Nav    string
	Title  string
	Crumbs []Link
	// Filter contains the fields of the form above the page's list. They are in the page's URL.
	Filter []Field
	Parts  []Part
	// Download is sent in place of the page. nil means that the page is sent.
	Download *Download
	// Static pages show something that does not change, such as a stored message. They have no stream of events.
	Static bool
}

// Action returns the action with a name, or nil if no part of the page has it. Actions with the same name differ only in their hidden fields.
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

// Tone returns the worst tone of the page's parts and their sources. A part is not known while its source does not answer.
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

// Heading returns the title of the browser's tab, with the page's state.
func (p *Page) Heading() string {
	return map[Tone]string{Bad: "In trouble: ", Muted: "Not known: ", Warn: "To look at: "}[p.Tone()] + p.Title + " – jetpull"
}

// Icon returns the page's icon, in the colour of its state.
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

// Link is a link to another page. Href is relative to the console's root.
type Link struct{ Text, Href string }

// Part is a section of a page. It shows the data of one source, so that a source that does not answer affects nothing else.
type Part struct {
	ID, Title string
	// Problem is a sentence about what is wrong with the part's object, or empty if no problem is known.
	Problem     string
	ProblemTone Tone
	// Source describes how old the part's data is, and why it is not newer.
	Source Source
	Lines  []string
	Facts  []Fact
	Charts []chart.Chart
	List   *List
	Texts  []Block
	// Actions are the actions on the object of this part, or on all objects that match its list's filter.
	Actions []Action
}

// Unknown reports whether the part's source has not answered yet. Then the part shows no data: a list that was not read is not an empty list.
func (p Part) Unknown() bool { return p.Source.Name != "" && p.Source.Asked.IsZero() }

// Source describes how current the data of a part is.
type Source struct {
	Name string
	// Asked is when the source last answered. It is zero if it has not answered yet.
	Asked time.Time
	// Stale data is older than it should be. Error is the reason, if it is known.
	Stale bool
	Error string
	// Refused reports whether the source refuses the console's token.
	Refused bool
	// Problem is a sentence about what is wrong with the source itself, or empty if no problem is known. Tone is its urgency.
	Problem string
	Tone    Tone
}

// Away returns the source after an error.
func (s Source) Away(err error) Source {
	s.Error, s.Refused = err.Error(), errors.Is(err, fs.ErrPermission)
	return s
}

// Does describes what the source does instead of sending data.
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
	// Fold is shown in place of Text if it is not nil.
	Fold *Folded
	// Note is a remark about the text, for example that it was truncated.
	Note string
	// Links lead to other views of the text, or to a download.
	Links []Link
}

// Column is a column of a list.
type Column struct {
	Title string
	// Number aligns the column to the right.
	Number bool
	// Sort is the value of the parameter "sort" that orders the list by this column. It is empty if that is not possible.
	Sort string
	// Wide columns use the whole width of a narrow screen.
	Wide bool
	// Help is the title of the heading.
	Help string
}

// Columns returns the columns of a list, from left to right. The title of a number column has the prefix ">", and that of a wide column "*".
func Columns(titles ...string) (all []Column) {
	for _, title := range titles {
		all = append(all, Column{Title: strings.TrimLeft(title, ">*"), Number: title[0] == '>', Wide: title[0] == '*'})
	}
	return all
}

// Row is an object in a list. Its ID is unique on the page, but not an element's ID: a live list changes the contents of rows, and moves no row.
type Row struct {
	ID    string
	Cells []Value
}

// List is a table of objects.
type List struct {
	Columns []Column
	Rows    []Row
	// Found is the number of objects that match the filter, such as "10,000+ messages".
	Found string
	// Empty describes what the list would contain, and how to get it there.
	Empty string
	// Sorted is the column by which the list is ordered, and Descending the direction.
	Sorted     string
	Descending bool
	// Query is the query of the list's page. Links to another order or page change it.
	Query url.Values
	Path  string
	// Previous and Next are the parameters of the adjacent pages, or nil.
	Previous, Next url.Values
	// Links lead to other parts of the list.
	Links []Link
}

// Add adds a row.
func (l *List) Add(id string, cells ...Value) {
	l.Rows = append(l.Rows, Row{ID: id, Cells: cells})
}

// Option is an option of a field.
type Option struct{ Value, Text string }

// Field is an input of a form.
type Field struct {
	Name, Label, Value string
	// Options make the field a choice.
	Options []Option
	// Type is the type of the input. Empty means text. The value of a password is not written.
	Type        string
	Placeholder string
	Required    bool
	Hidden      bool
}

// Outcome is the outcome of an action.
type Outcome struct {
	// Text describes the outcome. If half of an action's objects refused it, Text describes what happened to the rest.
	Text string
	// Count is the number of changed objects.
	Count int
	// Then is the page to show next, relative to the console's root. Empty means the page of the action.
	Then string
}

// Do runs an action with the fields of its form.
type Do func(ctx context.Context, form url.Values) (Outcome, error)

// Action changes something. It is a form that is sent to the URL of its page.
type Action struct {
	// Name is the value of the form's field "do". It is unique on the page.
	Name  string
	Label string
	// Target is the object of the action in the log of actions.
	Target string
	Fields []Field
	// Confirm describes what will happen, with the number of objects. If it is set, the action is confirmed on a separate page.
	Confirm string
	// Preview returns an addition to Confirm that takes a moment to compute, such as the number of selected objects. It may be nil.
	Preview func(ctx context.Context, form url.Values) string
	// Danger marks an action that cannot be undone.
	Danger bool
	// Word is the word that a user must type before the action runs. Empty means none.
	Word string
	Do   Do
}

// Filled returns the action with the values that a user has typed into its fields.
func (a *Action) Filled(form url.Values) *Action {
	filled := *a
	filled.Fields = slices.Clone(a.Fields)
	for i, f := range filled.Fields {
		filled.Fields[i].Value = form.Get(f.Name)
	}
	return &filled
}

// Entry is an entry of the log of actions.
type Entry struct {
	Time    time.Time
	Who     string
	Action  string
	Target  string
	Count   int
	Outcome string
	Failed  bool
}
