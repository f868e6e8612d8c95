package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// metricsSources are the files that declare the metrics of a section of docs/metrics.md, and the prefix of the names that they leave out.
var metricsSources = []struct {
	heading, prefix string
	files           []string
}{
	{"Broker", "broker", []string{"../../broker/internal/work/metrics.go", "../../internal/service/metrics/metrics.go"}},
	{"Relay", "relay", []string{"../../relay/internal/work/observe.go", "../../internal/service/metrics/metrics.go"}},
	{"Feed", "feed", []string{"../../feed/feedmetrics/feedmetrics.go"}},
	{"Exporter", "jetpull_consumer", []string{"../../internal/service/exporter/metrics.go"}},
}

// tableRows matches the rows of a table at the beginning of a text.
var tableRows = regexp.MustCompile(`^(?:\|.*\n)*`)

var metricName = regexp.MustCompile(`^_?[a-z]+(_[a-z]+)*$`)

// literal returns the value of an expression of string literals; an identifier in it is the prefix.
func literal(e ast.Expr, prefix string) (value string, isText bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, e.Kind == token.STRING && err == nil
	case *ast.Ident:
		return prefix, e.Name == "system"
	case *ast.BinaryExpr:
		left, ok := literal(e.X, prefix)
		right, also := literal(e.Y, prefix)
		return left + right, ok && also
	}
	return "", false
}

// metricLabels returns the strings among the arguments of a call, and in a slice among them.
func metricLabels(args []ast.Expr) (found []string) {
	for _, a := range args {
		if list, ok := a.(*ast.CompositeLit); ok {
			found = append(found, metricLabels(list.Elts)...)
		} else if label, ok := literal(a, ""); ok {
			found = append(found, "`"+label+"`")
		}
	}
	return found
}

// metricRows returns the rows of the metrics that a file declares: calls whose first two arguments are a name and a help text.
func metricRows(t *testing.T, path, prefix string) (rows []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		name, isName := literal(call.Args[0], prefix)
		help, isHelp := literal(call.Args[1], prefix)
		if isName && isHelp && metricName.MatchString(name) && strings.Contains(help, " ") {
			if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "desc" {
				name = prefix + "_" + name
			}
			rows = append(rows, fmt.Sprintf("| %#q | %s | %s |", name, strings.Join(metricLabels(call.Args[2:]), ", "), strings.TrimSuffix(help, ".")))
		}
		return true
	})
	return rows
}

// The tables of docs/metrics.md are what the code declares.
func TestMetricsPage(t *testing.T) {
	const path = "../../docs/metrics.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	const head = "| metric | labels | meaning |\n| --- | --- | --- |\n"
	for _, s := range metricsSources {
		var rows []string
		for _, file := range s.files {
			rows = append(rows, metricRows(t, file, s.prefix)...)
		}
		slices.Sort(rows)
		want := strings.Join(rows, "\n") + "\n"
		before, rest, ok := strings.Cut(string(page), "\n## "+s.heading+"\n")
		require.True(t, ok, s.heading)
		intro, rest, ok := strings.Cut(rest, head)
		require.True(t, ok, s.heading)
		got := tableRows.FindString(rest)
		if *update {
			page = []byte(before + "\n## " + s.heading + "\n" + intro + head + want + strings.TrimPrefix(rest, got))
			continue
		}
		require.Equal(t, want, got, "run make reference")
	}
	if *update {
		require.NoError(t, os.WriteFile(path, page, 0o600))
	}
}
