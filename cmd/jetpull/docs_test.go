package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// jetpullLine is a line of a document that runs the command, perhaps behind a pipe or a variable.
var jetpullLine = regexp.MustCompile(`(?:^|\| |[A-Z_]+=\S+ )jetpull ([^|#>\x60]*)`)

// documents lists the Markdown files of the project.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "out") {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	}))
	require.Greater(t, len(paths), 10)
	return paths
}

// commandLines returns what a document has readers type after "jetpull", in code blocks.
func commandLines(text string) (lines []string) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if code, indented := strings.CutPrefix(line, "    "); fenced || indented {
			if m := jetpullLine.FindStringSubmatch(strings.TrimSpace(code)); m != nil {
				lines = append(lines, strings.TrimSpace(m[1]))
			}
		}
	}
	return lines
}

// unknown says what is wrong with a command line of a document: a command or a flag that there is not. Arguments are not checked.
func unknown(line string) string {
	words, _, _ := strings.Cut(line+" ", " -- ")
	cmd, rest, err := newRootCommand().Find(strings.Fields(words))
	if err != nil {
		return err.Error()
	}
	if len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
		return "no command " + rest[0]
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		var flag *pflag.Flag
		if isFlag {
			if flag = cmd.Flags().Lookup(name); flag == nil {
				flag = cmd.InheritedFlags().Lookup(name)
			}
		}
		if isFlag && flag == nil && name != "help" && name != "" {
			return "no flag --" + name
		}
	}
	return ""
}

// Each command line in a document names a command and flags that exist.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, line := range commandLines(string(text)) {
			found++
			assert.Empty(t, unknown(line), "%s: jetpull %s", path, line)
		}
	}
	require.Greater(t, found, 40)
}

func TestUnknown(t *testing.T) {
	require.Equal(t, []string{"relay --listen :1", "feed add x"}, commandLines("a\n```sh\nX=1 jetpull relay --listen :1 # text\n```\n    seq 5 | jetpull feed add x\njetpull y\n"))
	for line, want := range map[string]string{
		"relay --listen :1":                     "",
		"consume O w --create 'o.>' -- ./x --y": "",
		"relay --lisen :1":                      "no flag --lisen",
		"rely":                                  `unknown command "rely"`,
	} {
		require.Contains(t, unknown(line), want, line)
	}
}

// No help is wider than 100 columns.
func TestWidthOfHelps(t *testing.T) {
	var check func(cmd *cobra.Command, path ...string)
	check = func(cmd *cobra.Command, path ...string) {
		r := jetpullRun(t, append(path, "--help")...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		for line := range strings.Lines(r.out) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, "%v: %s", path, line)
		}
		for _, sub := range cmd.Commands() {
			check(sub, append(slices.Clone(path), sub.Name())...)
		}
	}
	check(newRootCommand())
}
