// Command licenses writes the licence notices of all modules in the jetpull command into cmd/jetpull/internal/licenses/licenses.txt,
// which jetpull licenses prints:
//
//	licenses        # write the file
//	licenses check  # fail if the file differs
//
// It takes the texts from the module cache, for all platforms of a release. Run it from the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// noticesFile is the file that the command embeds.
const noticesFile = "cmd/jetpull/internal/licenses/licenses.txt"

func main() {
	if err := run(".", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(root string, args []string) error {
	check := len(args) == 1 && args[0] == "check"
	if len(args) > 0 && !check {
		return fmt.Errorf("%q is not an argument: leave it out to write %s, or give check to compare it", args, noticesFile)
	}
	holdings, err := list(root)
	if err != nil {
		return err
	}
	text, err := notices(holdings)
	if err != nil {
		return err
	}
	path := filepath.Join(root, noticesFile)
	if !check {
		return os.WriteFile(path, text, 0o644)
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return compare(old, text)
}
