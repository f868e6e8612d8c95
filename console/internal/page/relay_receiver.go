package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/view"
)

// withoutPassword is a URL without a password in it, and without a query, where tokens often are.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(an address that cannot be read)"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

func (y *Relay) one(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	one, s, found := lookup(ctx, y.latest, func(s targetSample[receiver]) []target[receiver] { return s.all },
		func(one target[receiver]) bool { return one.name == name })
	page := &view.Page{
		Nav: "relay", Title: name, Crumbs: []view.Link{{Text: "Relay", Href: "relay"}}, Parts: []view.Part{{ID: "receiver", Source: source(relayName, s)}},
	}
	switch {
	case !found && s.Stale(): // whether there is one is not known
		return page, nil
	case !found:
		return nil, notFound("The list of receivers shows all that there are.", "There is no receiver %q.", name)
	}
	part := y.part(ctx, r, page.Parts[0].Source, one, receiverColumns)
	part.Facts = append(part.Facts, view.Fact{Name: "All messages", Value: view.Linked("look at them", link("relaymessages", "receiver", name))})
	part.Charts = append(part.Charts, chart.Against("Window use", "POSTs", r.values(y.history, name, histWindow), float64(one.more.RateLimit)))
	part.Actions = thenAsk(y.latest, part.Actions)
	page.Parts = []view.Part{
		part,
		{ID: "configuration", Title: "Configuration", Lines: one.more.describe(), Source: view.Source{Stale: s.Stale()}}, // the first part states why
	}
	return page, nil
}

func (r receiver) describe() (all sentences) {
	all.add(true, "The relay POSTs messages to %s, and waits %s for an answer.", withoutPassword(r.PostEndpoint), view.Span(seconds(r.Timeout)))
	all.add(r.StatusEndpoint != "", "It asks %s for the result of a message.", withoutPassword(r.StatusEndpoint))
	all.add(r.RateLimit > 0, "At most %s in any %s.", view.Count(uint64(max(0, r.RateLimit)), "POST"), view.Span(seconds(r.WindowSize)))
	all.add(r.RateLimit <= 0, "There is no rate limit.")
	all.add(true, "A POST that failed is repeated after %s, at most %s.", view.Span(seconds(r.RetryAfter)),
		view.Count(uint64(max(0, r.MaxRetries)), "time"))
	all.add(true, "Order: %s. If the outcome of a POST is not known: %s.", r.Order, strings.ReplaceAll(r.UnknownOutcome, "_", " "))
	all.add(r.SecretCount > 0, "POSTs are signed with %s, which this page does not show.", view.Count(uint64(max(0, r.SecretCount)), "secret"))
	all.add(r.SecretCount == 0, "POSTs are not signed: the receiver has no secret.")
	all.add(r.Paused, "It is paused by an operator: its messages wait.")
	all.add(r.TTL > 0, "A message that was not delivered within %s is failed.", view.Span(seconds(r.TTL)))
	return all
}

func (y *Relay) actions(one target[receiver]) (all []view.Action) {
	add := func(possible bool, name, label, field string, value bool, text string) {
		if possible {
			all = append(all, view.Action{
				Name: name, Label: label, Target: one.name,
				Do: act(systemRefused(relayName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
					at := "/v1/receivers/" + url.PathEscape(one.name)
					return done(text), y.call.Call(ctx, http.MethodPatch, at, map[string]bool{field: value}, nil)
				}),
			})
		}
	}
	add(one.Paused != "", "resume", "Resume", "paused", false, "Resumed. "+one.name+" is not paused any more.")
	add(one.Paused == "", "pause", "Pause", "paused", true, "Paused. Messages to "+one.name+" wait.")
	add(one.Disabled != "", "enable", "Enable", "enable", true, "Enabled. "+one.name+" is not disabled any more.")
	return all
}
