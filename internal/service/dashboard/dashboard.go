// Package dashboard checks Grafana dashboards and Prometheus alert rules against a scrape. The scrape must have each metric and label that their
// expressions, legends and annotations use. Grafana and Prometheus check the rest when they load the files. The package is for tests.
//
//	scrape, err := dashboard.ParseScrape(body)
//	...
//	err = errors.Join(scrape.CheckDashboard(panels), scrape.CheckRules(alerts))
package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

type panel struct {
	Title   string
	Panels  []panel // of a row
	Targets []struct{ Expr, LegendFormat string }
}

var (
	labelValues = regexp.MustCompile(`label_values\((.+),\s*(\w+)\)`)
	legend      = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	alertLabel  = regexp.MustCompile(`\$labels\.(\w+)`)
)

// CheckDashboard checks a dashboard against the scrape: the expressions of its panels, the labels in their legends, and the queries of its variables.
// The error names all problems.
func (s *Scrape) CheckDashboard(source []byte) error {
	var board struct {
		Panels     []panel
		Templating struct {
			List []struct {
				Name, Type string
				Query      any // a string, or an object that contains it
			}
		}
	}
	if err := json.Unmarshal(source, &board); err != nil {
		return fmt.Errorf("the dashboard is not JSON: %w", err)
	}
	var errs []error
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		query := labelValues.FindStringSubmatch(fmt.Sprint(v.Query))
		if query == nil {
			errs = append(errs, fmt.Errorf("variable %s: its query %v is not label_values(metric, label)", v.Name, v.Query))
			continue
		}
		errs = append(errs, s.check("variable "+v.Name, query[1], query[2:]))
	}
	return errors.Join(append(errs, s.checkPanels(board.Panels))...)
}

func (s *Scrape) checkPanels(panels []panel) error {
	if len(panels) == 0 {
		return errors.New("the dashboard has no panels")
	}
	var errs []error
	for _, p := range panels {
		if len(p.Panels) > 0 {
			errs = append(errs, s.checkPanels(p.Panels))
		}
		for _, t := range p.Targets {
			errs = append(errs, s.check("panel "+p.Title, t.Expr, found(legend, t.LegendFormat)))
		}
	}
	return errors.Join(errs...)
}

// CheckRules checks a file of alert rules against the scrape: the expressions, and the labels in the annotations. The error names all problems.
func (s *Scrape) CheckRules(source []byte) error {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(source, &file); err != nil {
		return fmt.Errorf("the file is not one of alert rules: %w", err)
	}
	if len(file.Groups) == 0 {
		return errors.New("the file has no alert rule")
	}
	var errs []error
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			errs = append(errs, s.check("alert "+r.Alert, r.Expr, found(alertLabel, fmt.Sprint(r.Annotations))))
		}
	}
	return errors.Join(errs...)
}

func found(label *regexp.Regexp, text string) (labels []string) {
	for _, m := range label.FindAllStringSubmatch(text, -1) {
		labels = append(labels, m[1])
	}
	return labels
}
