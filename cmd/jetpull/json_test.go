package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

var (
	snakeCase    = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	durationText = regexp.MustCompile(`^(\d+(\.\d+)?(ns|µs|ms|s|m|h))+$`)
	timeText     = regexp.MustCompile(`^\d{4}-\d\d-\d\d`)
)

// checkJSON finds what in a value does not keep to the convention of docs/command.md. Names in headers and subjects are not fields.
func checkJSON(path string, value any) (wrong []string) {
	switch value := value.(type) {
	case nil:
		return []string{path + " is null"}
	case map[string]any:
		if len(value) == 0 {
			return []string{path + " is empty"}
		}
		for name, v := range value {
			if !snakeCase.MatchString(name) && !strings.HasSuffix(path, "headers") && !strings.HasSuffix(path, "subjects") {
				wrong = append(wrong, path+"."+name+" is not in snake_case")
			}
			wrong = append(wrong, checkJSON(path+"."+name, v)...)
		}
	case []any:
		if len(value) == 0 {
			return []string{path + " is empty"}
		}
		for i, v := range value {
			wrong = append(wrong, checkJSON(fmt.Sprint(path, i), v)...)
		}
	case string:
		_, err := time.Parse(time.RFC3339, value)
		switch {
		case strings.HasSuffix(path, ".data"): // a payload, which can be empty
		case value == "":
			return []string{path + " is empty"}
		case durationText.MatchString(value):
			return []string{path + " is a duration as text: " + value}
		case timeText.MatchString(value) && err != nil:
			return []string{path + " is a time without a zone: " + value}
		}
	}
	return wrong
}

// All commands print JSON by one convention.
func TestJSONConvention(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}})
	require.NoError(t, err)
	db := newDB(t)
	servers := []string{"--nats", f.url}
	for _, tt := range []struct {
		line  string
		flags []string
		in    string
	}{
		{"publish s.a text", servers, ""},
		{"publish s.a", servers, "\xff\xfe"},
		{"publish s.a", servers, ""},
		{"fetch S c --count 2 --settle nak", servers, ""},
		{"consume S c --idle 1s --max-attempts 2 --retry-delays 10ms --dead-letter dead.s -- false", servers, ""},
		{"publish s.a text", servers, ""},
		{"consume S c --count 1", servers, ""},
		{"info S c", servers, ""},
		{"info S c", servers, ""},
		{"consumers pause S c --for 1h", servers, ""},
		{"consumers resume S c", servers, ""},
		{"consumers reset S c", servers, ""},
		{"dlq ls D", servers, ""},
		{"dlq show D 1", servers, ""},
		{"dlq show D 2", servers, ""},
		{"dlq requeue D 1 --dry-run", servers, ""},
		{"dlq requeue D 1", servers, ""},
		{"dlq purge D --all", servers, ""},
		{"feed add p", []string{"--db", db}, "1\n\xff\n\n"},
		{"feed ls", []string{"--db", db}, ""},
		{"feed ls p", []string{"--db", db}, ""},
		{"feed show p", []string{"--db", db}, ""},
		{"feed retry p", []string{"--db", db}, ""},
		{"feed skip p", []string{"--db", db}, ""},
		{"feed prune --older-than 1h", []string{"--db", db}, ""},
	} {
		line, command, _ := strings.Cut(tt.line, " -- ")
		args := append(append(strings.Fields(line), tt.flags...), "--json")
		if command != "" {
			args = append(args, "--", command)
		}
		r := jetpullRunWith(t, strings.NewReader(tt.in), args...)
		require.Contains(t, []int{cli.ExitDone, cli.ExitFailed}, r.code, "%s: %s", tt.line, r.err)
		require.NotEmpty(t, r.out+r.err, tt.line)
		if !strings.HasPrefix(tt.line, "consume S c --idle") && !strings.HasPrefix(tt.line, "dlq show D 2") {
			require.NotEmpty(t, r.out, tt.line)
		}
		for dec := json.NewDecoder(strings.NewReader(r.out + r.err)); ; {
			var value map[string]any
			err := dec.Decode(&value)
			if err == io.EOF {
				break
			}
			require.NoError(t, err, "%s: %s", tt.line, r.out+r.err)
			require.Empty(t, checkJSON("", value), "%s: %s", tt.line, r.out+r.err)
		}
	}
}

func TestCheckJSONFires(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":null}`: ".a is null", `{"a":""}`: ".a is empty", `{"a":[]}`: ".a is empty", `{"a":{}}`: ".a is empty", `{"aB":1}`: ".aB is not in snake_case",
		`{"a":"30s"}`: ".a is a duration as text: 30s", `{"a":"2026-01-02 03:04:05"}`: ".a is a time without a zone: 2026-01-02 03:04:05",
	} {
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		require.Equal(t, []string{want}, checkJSON("", value))
	}
}

// An error of the command line is JSON wherever --json is in it.
func TestUsageErrorsInJSON(t *testing.T) {
	for line, isJSON := range map[string]bool{
		"info S c --bogus --json":                 true,
		"fetch S c --count many -j":               true,
		"dlq lst --json":                          true,
		"nonsense --json":                         true,
		"feed ls --status bad --json":             true,
		"consume S c --idle x --json -- cat":      true,
		"consume S c --idle x -- jq --json -j . ": false,
	} {
		r := jetpullRun(t, strings.Fields(line)...)
		require.Equal(t, cli.ExitUsage, r.code, line)
		if isJSON {
			require.Regexp(t, `^\{"error":".+","code":2\}\n$`, r.err, line)
		} else {
			require.Contains(t, r.err, "See: jetpull consume --help\n", line)
		}
	}
}
