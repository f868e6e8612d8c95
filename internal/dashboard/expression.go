package dashboard

import (
	"errors"
	"fmt"
	"strings"
)

// use is what an expression needs: metrics, each with the matchers of one selector, and labels to group or join by.
type use struct {
	selectors []selector
	grouped   []string
}

type selector struct {
	metric   string
	matchers []matcher
}

// words that are no metric. An aggregation may have its labels before its arguments, so that no parenthesis shows it.
var words = set(`and or unless bool offset inf nan atan2
	sum min max avg count group stddev stdvar topk bottomk quantile count_values limitk`)

// grouping words have labels in parentheses behind them.
var grouping = set("by without on ignoring group_left group_right")

// functions are those of PromQL that are of use here. A list, so that a misspelt one is found.
var functions = set(`abs absent absent_over_time avg_over_time ceil changes clamp clamp_max clamp_min count_over_time delta deriv
	end exp floor histogram_quantile idelta increase irate label_join label_replace last_over_time ln log10 log2 max_over_time min_over_time
	present_over_time quantile_over_time rate resets round scalar sgn sort sort_desc sqrt start sum_over_time time timestamp vector`)

func set(list string) map[string]bool {
	s := map[string]bool{}
	for _, word := range strings.Fields(list) {
		s[word] = true
	}
	return s
}

var closing = map[string]string{"(": ")", "[": "]"}

// parse finds the metrics and labels of an expression. It is no grammar of PromQL: it finds what is misspelt and brackets that
// do not match, not every expression that Prometheus would refuse.
func parse(expression string) (use, error) {
	var u use
	s, err := newScanner(expression)
	if err != nil {
		return u, err
	}
	var open []string
	for s.next.kind != end {
		t, err := s.take()
		if err != nil {
			return u, err
		}
		switch {
		case t.kind == name:
			err = u.word(s, t.text)
		case t.is("{"), t.is("}"):
			err = fmt.Errorf("%s does not follow a metric", t.text)
		case t.is("(["):
			open = append(open, closing[t.text])
		case t.is(")]"):
			if len(open) == 0 || open[len(open)-1] != t.text {
				return u, fmt.Errorf("%s closes nothing", t.text)
			}
			open = open[:len(open)-1]
		}
		if err != nil {
			return u, err
		}
	}
	if len(open) > 0 {
		return u, fmt.Errorf("%s is missing at the end", open[len(open)-1])
	}
	if len(u.selectors) == 0 {
		return u, errors.New("it uses no metric")
	}
	return u, nil
}

// word reads what belongs to a name: the labels that it groups by, or the matchers of the metric that it is.
func (u *use) word(s *scanner, word string) error {
	switch lower := strings.ToLower(word); {
	case grouping[lower]:
		if !s.next.is("(") {
			if strings.HasPrefix(lower, "group_") {
				return nil // a join that takes no labels over
			}
			return fmt.Errorf("%s has no labels in parentheses", word)
		}
		return u.labels(s)
	case words[lower]:
		return nil
	case s.next.is("("):
		if !functions[word] {
			return fmt.Errorf("%s is no function that is known here", word)
		}
		return nil
	}
	sel := selector{metric: word}
	if s.next.is("{") {
		var err error
		if sel.matchers, err = s.labels(); err != nil {
			return err
		}
	}
	u.selectors = append(u.selectors, sel)
	return nil
}

// labels reads (a, b).
func (u *use) labels(s *scanner) error {
	if _, err := s.take(); err != nil {
		return err
	}
	for !s.next.is(")") {
		label, err := s.expect(name, "a label")
		if err != nil {
			return err
		}
		u.grouped = append(u.grouped, label)
		if s.next.is(",") {
			if _, err := s.take(); err != nil {
				return err
			}
		} else if !s.next.is(")") {
			return fmt.Errorf("%q after %s, where a comma or ) belongs", s.next.text, label)
		}
	}
	_, err := s.take()
	return err
}
