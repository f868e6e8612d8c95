package dashboard

import (
	"errors"
	"strings"

	"github.com/VictoriaMetrics/metricsql"
)

// use is what an expression needs: metrics, each with the labels of one selector, and labels to group or join by.
type use struct {
	selectors []selector
	grouped   []string
}

type selector struct {
	metric string
	labels []string
}

func set(list string) map[string]bool {
	s := map[string]bool{}
	for _, word := range strings.Fields(list) {
		s[word] = true
	}
	return s
}

// parse reads an expression of PromQL, in which Grafana may put a number or a duration for a variable. Its parser is that of MetricsQL, which
// has more functions than PromQL.
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
