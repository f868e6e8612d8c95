package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metricsql"
)

// Scrape contains the labels of each metric with a sample that a process exposes.
type Scrape struct {
	labels map[string]map[string]bool
}

// ParseScrape parses the text format of Prometheus.
func ParseScrape(body string) (*Scrape, error) {
	s := &Scrape{labels: map[string]map[string]bool{}}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		// Only numbers follow the series.
		series, _, _ := strings.Cut(line, " ")
		if end := strings.LastIndexByte(line, '}'); end >= 0 {
			series = line[:end+1]
		}
		u, err := parse(series)
		if err == nil && (len(u.selectors) != 1 || u.selectors[0].metric == "") {
			err = errors.New("it is not a sample of one metric")
		}
		if err != nil {
			return nil, fmt.Errorf("the scrape has the line %q: %w", line, err)
		}
		metric := u.selectors[0].metric
		if s.labels[metric] == nil {
			s.labels[metric] = map[string]bool{"job": true, "instance": true} // Prometheus adds these to every series
		}
		for _, label := range u.selectors[0].labels {
			s.labels[metric][label] = true
		}
	}
	if len(s.labels) == 0 {
		return nil, errors.New("the scrape has no sample")
	}
	return s, nil
}

// check checks an expression, and the labels of its result that are used, against the scrape. where names the place of the expression.
func (s *Scrape) check(where, expression string, used []string) error {
	u, err := parse(expression)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", where, expression, err)
	}
	var errs []error
	all := map[string]bool{}
	for _, sel := range u.selectors {
		labels, ok := s.labels[sel.metric]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %s: the scrape has no metric %q", where, expression, sel.metric))
		}
		maps.Copy(all, labels)
		for _, label := range sel.labels {
			if ok && !labels[label] {
				errs = append(errs, fmt.Errorf("%s: %s: %s has no label %s, but %s", where, expression, sel.metric, label, slices.Sorted(maps.Keys(labels))))
			}
		}
	}
	for _, label := range append(u.grouped, used...) {
		if errs == nil && !all[label] {
			return fmt.Errorf("%s: %s: none of its metrics has the label %s", where, expression, label)
		}
	}
	return errors.Join(errs...)
}

// use lists the needs of an expression: metrics, each with the labels of one selector, and labels to group or join by.
type use struct {
	selectors []selector
	grouped   []string
}

type selector struct {
	metric string
	labels []string
}

var variable = regexp.MustCompile(`\$(?:\{\w+(?::\w+)?\}|\w+)`)

// parse parses an expression of PromQL, in which Grafana may replace variables by a number or a duration. The parser is that of MetricsQL, which has
// more functions than PromQL.
func parse(expression string) (u use, err error) {
	e, err := metricsql.Parse(variable.ReplaceAllString(expression, "1m"))
	if err != nil {
		return u, err
	}
	metricsql.VisitAll(e, u.visit)
	if len(u.selectors) == 0 {
		return u, errors.New("it uses no metric")
	}
	return u, nil
}

func (u *use) visit(e metricsql.Expr) {
	switch e := e.(type) {
	case *metricsql.MetricExpr:
		for _, filters := range e.LabelFilterss {
			var s selector
			for _, f := range filters {
				if f.Label == "__name__" {
					s.metric = f.Value
				} else {
					s.labels = append(s.labels, f.Label)
				}
			}
			u.selectors = append(u.selectors, s)
		}
	case *metricsql.AggrFuncExpr:
		u.grouped = append(u.grouped, e.Modifier.Args...)
	case *metricsql.BinaryOpExpr:
		u.grouped = append(append(u.grouped, e.GroupModifier.Args...), e.JoinModifier.Args...)
	}
}
