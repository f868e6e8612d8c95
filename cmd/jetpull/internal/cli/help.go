package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/internal/service/progress"
)

const helpWidth = 100

// help has the help of root and the commands below it wrapped at the width of the terminal, and returns the error of writing it.
func help(root *cobra.Command) (failed func() error) {
	show := root.HelpFunc()
	var err error
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out, width := cmd.OutOrStdout(), helpWidth
		if columns := progress.Width(out); columns > 0 {
			width = min(width, columns)
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		show(cmd, args)
		cmd.SetOut(out)
		_, err = io.WriteString(out, wrap(text.String(), width))
	})
	return func() error { return err }
}

// before finds what is before the text of a line: its indentation, and the name and kind of a flag.
var before = regexp.MustCompile(`^ *(?:(?:-\w, )?--[\w-]+(?: \S+)? {2,})?`)

// wrap breaks lines at spaces. The rest is below the text of the line. The examples, which are copied, stay as they are.
func wrap(text string, width int) string {
	var b strings.Builder
	examples := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, " ") {
			examples = line == "Examples:" || examples && line == ""
		}
		head := before.FindString(line)
		indent := strings.Repeat(" ", utf8.RuneCountInString(head))
		if len(indent) > width/2 {
			indent, head = "          ", ""
		}
		for !examples && utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			at := strings.LastIndex(string(runes[:width+1]), " ")
			if at <= max(len(head), len(indent)) {
				break // one long word
			}
			b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
			line, head = indent+strings.TrimLeft(line[at:], " "), ""
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
