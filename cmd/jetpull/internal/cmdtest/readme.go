package cmdtest

import (
	"fmt"
	"os"
	"strings"
)

// TryIt returns the commands that a README tells its readers to type in the section "Try it", in their order: its indented lines, with those that end
// in a backslash joined.
func TryIt(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, section, ok := strings.Cut(string(text), "\n## Try it\n")
	if !ok {
		return nil, fmt.Errorf("%s has no section \"Try it\"", path)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	more := false
	for line := range strings.Lines(section) {
		code, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		if more {
			commands[len(commands)-1] += code
		} else {
			commands = append(commands, code)
		}
		more = strings.HasSuffix(strings.TrimSpace(code), `\`)
	}
	return commands, nil
}
