package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Scrape is what a process exposes: the labels of each metric that has a sample.
type Scrape struct {
	labels map[string]map[string]bool
}

// target are the labels that Prometheus gives every series of a process.
var target = set("job instance")

// ParseScrape reads the text format of Prometheus.
func ParseScrape(body string) (*Scrape, error) {
	found := &Scrape{labels: map[string]map[string]bool{}}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := found.add(line); err != nil {
			return nil, fmt.Errorf("the scrape has the line %q: %w", line, err)
		}
	}
	if len(found.labels) == 0 {
		return nil, errors.New("the scrape has no sample")
	}
	return found, nil
}

func (s *Scrape) add(line string) error {
	// Behind the series there are numbers only.
	series, _, _ := strings.Cut(line, " ")
	if end := strings.LastIndexByte(line, '}'); end >= 0 {
		series = line[:end+1]
	}
	u, err := parse(series)
	if err != nil {
		return err
	}
	found := u.selectors[0]
	if found.metric == "" || len(u.selectors) > 1 {
		return errors.New("it is not a sample of one metric")
	}
	if s.labels[found.metric] == nil {
		s.labels[found.metric] = map[string]bool{}
	}
	for _, label := range found.labels {
		s.labels[found.metric][label] = true
	}
	return nil
}

// check holds an expression against the scrape, and returns the labels that its result can have.
func (s *Scrape) check(expression string) (map[string]bool, error) {
	u, err := parse(expression)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	var errs []error
	all := maps.Clone(target)
	for _, sel := range u.selectors {
		sel.metric = cmp.Or(sel.metric, "metric that has no name")
		labels, ok := s.labels[sel.metric]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: the scrape has no %s", expression, sel.metric))
			continue
		}
		maps.Copy(all, labels)
		for _, label := range sel.labels {
			if !labels[label] && !target[label] {
				errs = append(errs, fmt.Errorf("%s: %s has no label %s, but %s", expression, sel.metric, label, list(labels)))
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, label := range u.grouped {
		if !all[label] {
			errs = append(errs, fmt.Errorf("%s: none of its metrics has the label %s", expression, label))
		}
	}
	return all, errors.Join(errs...)
}

func list(labels map[string]bool) string {
	if len(labels) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
}
