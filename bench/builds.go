package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jetpull/jetpull/bench/measure"
)

// programFolders are where this program is in a checkout, its main package first.
var programFolders = []string{"bench", "bench/measure", "bench/internal/report"}

// builds are two builds of this program, each a process: one on the client of this tree, one on the client that it is
// compared with.
type builds struct {
	against  string
	dir      string
	old, new *child
}

// startBuilds builds the program of root on the client of against, a revision or the folder of another checkout, and
// starts it as another process. Both measure at the endpoints.
func startBuilds(ctx context.Context, root, against string, at endpoints) (*builds, error) {
	b := &builds{against: against}
	var err error
	if b.dir, err = os.MkdirTemp("", "jetpull-bench-against-"); err != nil {
		return nil, err
	}
	older, err := buildAgainst(ctx, root, against, b.dir)
	if err == nil {
		b.old, err = startChild(older, clientCommand, at.Direct, at.Delayed)
	}
	if err == nil {
		b.new, err = startSelf(clientCommand, at.Direct, at.Delayed)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close ends both processes and removes the old build.
func (b *builds) Close() error {
	var errs []error
	for _, c := range []*child{b.old, b.new} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// contenders are the two builds, the old one first.
func (b *builds) contenders(*measure.Case) []measure.Contender {
	return []measure.Contender{
		{Name: "old, " + b.against, Play: b.old.play},
		{Name: "new", Ours: true, Play: b.new.play},
	}
}

// buildAgainst builds the bench program of root on the client of against. The older tree's own bench program has other
// cases, so an overlay replaces it; neither tree is written to.
func buildAgainst(ctx context.Context, root, against, dir string) (program string, err error) {
	tree := against
	if _, err := os.Stat(filepath.Join(against, "go.mod")); err != nil {
		tree = filepath.Join(dir, "tree")
		if err := exportRevision(ctx, root, against, tree); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for _, folder := range programFolders {
		if err := overlay(replace, filepath.Join(tree, folder), filepath.Join(root, folder)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "bench-old")
	return program, execute(ctx, "go", "build", "-C", tree, "-buildvcs=false", "-overlay", file, "-o", program, "./"+programFolders[0])
}

// execute runs a command whose output matters only if it fails.
func execute(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// exportRevision writes the files of a git revision into a new folder.
func exportRevision(ctx context.Context, root, revision, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	archive := to + ".tar"
	if err := execute(ctx, "git", "-C", root, "archive", "-o", archive, revision); err != nil {
		return fmt.Errorf("-against %s is neither the folder of a checkout nor a revision: %w", revision, err)
	}
	return execute(ctx, "tar", "-x", "-f", archive, "-C", to)
}

// overlay maps each Go file of the folder from to the file of the folder with that stands for it, or to none.
func overlay(replace map[string]string, from, with string) error {
	from, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	if with, err = filepath.Abs(with); err != nil {
		return err
	}
	older, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, file := range older {
		if !file.IsDir() && file.Name() != "go.mod" && file.Name() != "go.sum" {
			replace[filepath.Join(from, file.Name())] = ""
		}
	}
	newer, err := os.ReadDir(with)
	for _, file := range newer {
		if !file.IsDir() && file.Name() != "go.mod" && file.Name() != "go.sum" {
			replace[filepath.Join(from, file.Name())] = filepath.Join(with, file.Name())
		}
	}
	return err
}
