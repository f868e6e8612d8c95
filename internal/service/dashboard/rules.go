package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

type ruleFile struct {
	Groups []struct {
		Name     string `yaml:"name"`
		Interval string `yaml:"interval"`
		Rules    []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert         string            `yaml:"alert"`
	Record        string            `yaml:"record"`
	Expr          string            `yaml:"expr"`
	For           string            `yaml:"for"`
	KeepFiringFor string            `yaml:"keep_firing_for"`
	Labels        map[string]string `yaml:"labels"`
	Annotations   map[string]string `yaml:"annotations"`
}

var alertLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// CheckRules holds a file of alert rules against the scrape: the expressions, and the labels in the annotations. A rule has a
// summary and a severity. The error names all that is wrong.
func (s *Scrape) CheckRules(source []byte) error {
	var f ruleFile
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil {
		return fmt.Errorf("the file is not one of alert rules: %w", err)
	}
	var errs []error
	seen := map[string]bool{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] {
				errs = append(errs, fmt.Errorf("two alerts are called %q", r.Alert))
			}
			seen[r.Alert] = true
			errs = append(errs, wrap(fmt.Sprintf("alert %q", r.Alert), s.checkRule(r)))
		}
	}
	if len(seen) == 0 {
		errs = append(errs, errors.New("the file has no alert rule"))
	}
	return errors.Join(errs...)
}

func (s *Scrape) checkRule(r rule) error {
	var errs []error
	if r.Alert == "" || r.Record != "" {
		errs = append(errs, fmt.Errorf("it has the name %q and records %q: only alerts are known here", r.Alert, r.Record))
	}
	if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
		errs = append(errs, errors.New("its annotation summary or its label severity is missing"))
	}
	for _, d := range []string{r.For, r.KeepFiringFor} {
		if d == "" {
			continue
		}
		if _, err := time.ParseDuration(d); err != nil {
			errs = append(errs, fmt.Errorf("%q is not a duration such as 5m", d))
		}
	}
	labels, err := s.check(r.Expr)
	errs = append(errs, err)
	for _, annotation := range r.Annotations {
		for _, l := range alertLabel.FindAllStringSubmatch(annotation, -1) {
			if err == nil && !labels[l[1]] {
				errs = append(errs, fmt.Errorf("%q: the metrics of the expression have no label %s", annotation, l[1]))
			}
		}
	}
	return errors.Join(errs...)
}
