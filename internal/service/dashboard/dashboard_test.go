package dashboard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const exposition = `# HELP app_requests_total Requests.
# TYPE app_requests_total counter
app_requests_total{code="200",path="/a b{}\"x\""} 3
app_requests_total{code="500",path="/",} 1e+06 1395066363000
# TYPE app_seconds histogram
app_seconds_bucket{path="/",le="0.5"} 1
app_seconds_bucket{path="/",le="+Inf"} 2
app_seconds_sum{path="/"} NaN
app_up 1
`

func scrape(t *testing.T) *Scrape {
	t.Helper()
	s, err := ParseScrape(exposition)
	require.NoError(t, err)
	return s
}

func TestScrapeThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "no sample",
		"# only a comment\n":   "no sample",
		"<html>not found":      `unexpected token "<"`,
		`app{code="200} 1`:     "cannot find closing quote",
		`app{code=200} 1`:      `unexpected token "200"`,
		`app{code="1" b="2"}`:  `unexpected token "b"`,
		`app{code="1"`:         `want ",", "or", "}"`,
		`app{code=="1"} 1`:     `unexpected token "=="`,
		`app{code="\xff\q"} 1`: "cannot parse string literal",
		`{code="1"} 1`:         "not a sample of one metric",
	} {
		_, err := ParseScrape(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestExpressions(t *testing.T) {
	s := scrape(t)
	for _, expression := range []string{
		`app_up`,
		`sum by (code) (rate(app_requests_total{path=~"$path", code!='5..'}[$__rate_interval]))`,
		`sum(rate(app_requests_total[5m])) without (path, code)`,
		`histogram_quantile(0.99, sum by (le, path) (rate(app_seconds_bucket[${__rate_interval}]))) > 2.5`,
		`max_over_time(app_up{job="x"}[1h:30s] offset 5m) == bool 1 and on (instance) app_up`,
		`app_up * on (path) group_left (code) app_requests_total or app_up * ignoring (code) group_left() app_up`,
		`app_up * on (path) group_left app_requests_total`,
		"topk(3, app_requests_total{path=`/`}) + 1e3 - -Inf",
	} {
		require.NoError(t, s.check("panel x", expression, nil), expression)
	}
	for _, tt := range []struct{ expression, want string }{
		{`app_uq`, `the scrape has no metric "app_uq"`},
		{`rate(app_requests[5m]) / app_nothing`, "the scrape has no metric \"app_requests\"\n"},
		{`app_requests_total{status="500"}`, "app_requests_total has no label status, but [code instance job path]"},
		{`app_up{code="1"}`, "app_up has no label code, but [instance job]"},
		{`sum by (receiver) (app_requests_total)`, "none of its metrics has the label receiver"},
		{`ratte(app_requests_total[5m])`, `unsupported function "ratte"`},
		{`sum by code (app_requests_total)`, `unexpected token "code"; want "("`},
		{`sum(app_up`, `want ",", ")"`},
		{`sum(app_up]`, `unexpected token "]"`},
		{`app_up)`, "unparsed data left"},
		{`{code="1"}`, `the scrape has no metric ""`},
		{`vector(1)`, "uses no metric"},
		{``, "unexpected token"},
		{`app_requests_total{code="5}`, "cannot find closing quote"},
		{`sum by (1) (app_up)`, `want "ident"`},
		{`sum by (code path) (app_requests_total)`, `want ",", ")"`},
		{`app_requests_total{"code"}`, "metric name must not be set twice"},
		{`app_requests_total{code}`, `cannot find WITH template for "code"`},
		{`app_requests_total{code~="x"}`, "cannot recognize"},
	} {
		require.ErrorContains(t, s.check("panel x", tt.expression, nil), tt.want, tt.expression)
	}
}

const goodPanel = `{"id": 1, "type": "timeseries", "title": "Requests",
	"targets": [{"expr": "sum by (code) (rate(app_requests_total{path=~\"$path\"}[$__rate_interval]))", "legendFormat": "{{code}}"}]}`

func boardWith(panels string) []byte {
	return fmt.Appendf(nil, `{"title": "App", "uid": "app", "panels": [%s], "templating": {"list": [
		{"name": "datasource", "type": "datasource", "query": "prometheus"},
		{"name": "path", "type": "query", "query": {"query": "label_values(app_requests_total, path)"}}]}}`, panels)
}

func TestDashboard(t *testing.T) {
	s := scrape(t)
	require.NoError(t, s.CheckDashboard(boardWith(goodPanel)))
	require.NoError(t, s.CheckDashboard(boardWith(`{"type": "row", "panels": [`+goodPanel+`]}, {"id": 1, "type": "text"}`)))
	for want, source := range map[string]string{
		"not JSON":                        `{`,
		"no panels":                       `{"title": "t", "uid": "u"}`,
		"panel x: app_uq: the scrape":     string(boardWith(`{"id": 2, "title": "x", "targets": [{"expr": "app_uq"}]}`)),
		"has the label code":              string(boardWith(`{"id": 2, "title": "x", "targets": [{"expr": "app_up", "legendFormat": "{{code}}"}]}`)),
		"variable v: app_up: none of its": `{"title": "t", "uid": "u", "templating": {"list": [{"name": "v", "type": "query", "query": "label_values(app_up, path)"}]}}`,
		"is not label_values":             `{"title": "t", "uid": "u", "templating": {"list": [{"name": "v", "type": "query", "query": 7}]}}`,
		"query label_values(path)":        `{"templating": {"list": [{"name": "v", "type": "query", "query": "label_values(path)"}]}}`,
	} {
		require.ErrorContains(t, s.CheckDashboard([]byte(source)), want, source)
	}
}

func rulesWith(rule string) []byte { return []byte("groups:\n- name: app\n  rules:\n" + rule) }

const goodRule = `  - alert: Errors
    expr: sum by (path) (rate(app_requests_total{code=~"5.."}[5m])) > 0.1
    for: 10m
    labels: {severity: page}
    annotations: {summary: "{{ $labels.path }} answers with errors"}
`

func TestRules(t *testing.T) {
	s := scrape(t)
	require.NoError(t, s.CheckRules(rulesWith(goodRule)))
	for want, source := range map[string]string{
		"not one of alert rules": "groups: 7",
		"no alert rule":          "groups: []",
		"unexpected token":       "groups:\n- rules:\n  - alert: a\n    exprr: app_up",
		"app_uq: the scrape has": "groups:\n- rules:\n  - alert: a\n    expr: app_uq",
		"has the label path":     "groups:\n- rules:\n  - alert: a\n    expr: app_up\n    annotations: {summary: $labels.path}",
	} {
		require.ErrorContains(t, s.CheckRules([]byte(source)), want, source)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(`sum by (code) (rate(app_requests_total{path=~"$path"}[5m]))`)
	f.Add("app_up{")
	f.Add(`'\`)
	f.Fuzz(func(_ *testing.T, text string) {
		s, err := ParseScrape(exposition + text)
		if err == nil {
			_ = s.check("panel x", text, []string{"code"})
		}
		_, _ = parse(text)
	})
}
