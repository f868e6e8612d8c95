package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

type board struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Panels     []panel
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		}
	}
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	Panels  []panel
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	}
}

var (
	variable    = regexp.MustCompile(`\$(?:\{(\w+)(?::\w+)?\}|(\w+))`)
	labelValues = regexp.MustCompile(`^label_values\((?:(.+),\s*)?(\w+)\)$`)
	legend      = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
)

// builtIn are Grafana's own variables that expressions use.
var builtIn = set("__rate_interval __interval __range")

// CheckDashboard holds a dashboard against the scrape: the expressions of its panels, the labels in their legends, the
// queries of its variables, and that there is each variable that is used. Its error names all that is wrong.
func (s *Scrape) CheckDashboard(source []byte) error {
	var b board
	if err := json.Unmarshal(source, &b); err != nil {
		return fmt.Errorf("the dashboard is not JSON: %w", err)
	}
	var errs []error
	if b.Title == "" || b.UID == "" {
		errs = append(errs, fmt.Errorf("the dashboard has the title %q and the uid %q, and needs both", b.Title, b.UID))
	}
	known := map[string]bool{}
	for _, v := range b.Templating.List {
		known[v.Name] = true
		if v.Type == "query" {
			errs = append(errs, wrap("variable "+v.Name, s.checkQuery(v.Query)))
		}
	}
	panels := flatten(b.Panels)
	if len(panels) == 0 {
		errs = append(errs, errors.New("the dashboard has no panel with an expression"))
	}
	seen := map[int]string{}
	for _, p := range panels {
		if other, twice := seen[p.ID]; twice {
			errs = append(errs, fmt.Errorf("panels %q and %q have both the id %d", other, p.Title, p.ID))
		}
		seen[p.ID] = p.Title
		errs = append(errs, wrap(fmt.Sprintf("panel %q", p.Title), s.checkPanel(p, known)))
	}
	return errors.Join(errs...)
}

// flatten returns the panels that show something, those within rows too.
func flatten(panels []panel) (all []panel) {
	for _, p := range panels {
		if p.Type == "row" {
			all = append(all, flatten(p.Panels)...)
		} else if p.Type != "text" {
			all = append(all, p)
		}
	}
	return all
}

func (s *Scrape) checkPanel(p panel, known map[string]bool) error {
	var errs []error
	if p.Title == "" || len(p.Targets) == 0 {
		errs = append(errs, fmt.Errorf("it has the title %q and %d expressions, and needs both", p.Title, len(p.Targets)))
	}
	for _, t := range p.Targets {
		for _, v := range variable.FindAllStringSubmatch(t.Expr, -1) {
			if name := v[1] + v[2]; !known[name] && !builtIn[name] {
				errs = append(errs, fmt.Errorf("%s: the dashboard has no variable %s", t.Expr, name))
			}
		}
		labels, err := s.check(t.Expr)
		errs = append(errs, err)
		for _, l := range legend.FindAllStringSubmatch(t.Legend, -1) {
			if err == nil && !labels[l[1]] {
				errs = append(errs, fmt.Errorf("%s: its legend %s has a label that its metrics do not have", t.Expr, t.Legend))
			}
		}
	}
	return errors.Join(errs...)
}

// checkQuery checks the query of a variable: a string, or an object that has it.
func (s *Scrape) checkQuery(query any) error {
	if object, ok := query.(map[string]any); ok {
		query = object["query"]
	}
	text, _ := query.(string)
	parts := labelValues.FindStringSubmatch(text)
	if parts == nil {
		return fmt.Errorf("its query %v is not label_values(metric, label)", query)
	}
	if parts[1] == "" {
		return fmt.Errorf("its query %s has no metric, so that it would show the labels of other processes", text)
	}
	labels, err := s.check(parts[1])
	if err == nil && !labels[parts[2]] {
		err = fmt.Errorf("%s: the metric has no label %s", text, parts[2])
	}
	return err
}

func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}
