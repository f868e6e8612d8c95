// Command licenses writes the licence notices of all modules in the jetpull command into cmd/jetpull/internal/licenses/licenses.txt,
// and compressed into licenses.txt.gz there, which jetpull licenses prints:
//
//	licenses        # write the files
//	licenses check  # fail if a file differs
//
// It takes the texts from the module cache, for all platforms of a release. Run it from the root of the repository.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// noticesFile is in each package of a release. The command embeds the compressed one.
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
		packed, err := pack(text)
		return errors.Join(err, os.WriteFile(path, text, 0o644), os.WriteFile(path+".gz", packed, 0o644))
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := compare(old, text); err != nil {
		return err
	}
	embedded, err := unpack(path + ".gz")
	if err != nil {
		return err
	}
	return compare(embedded, text)
}

func pack(text []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return packed.Bytes(), err
}

func unpack(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	r, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return io.ReadAll(r)
}
