package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// versioned are the files that have the version, besides go.mod files, with the text before it. A chart has it with and without v.
var versioned = map[string][]string{
	"deploy/helm/jetpull/Chart.yaml": {"version: ", "appVersion: v"},
	"sdk/typescript/package.json":    {`  "version": "`},
	"sdk/python/pyproject.toml":      {`version = "`},
}

var number = regexp.MustCompile(`^\d+\.\d+\.\d+`)

// commit commits a release on a branch and tags it. The first commit, with the date and the version, is for main. The second has go.mod files
// that users need, and the tags.
func commit(ctx context.Context, version string, today time.Time) error {
	if semver.Canonical(version) != version || semver.Prerelease(version) != "" {
		return fmt.Errorf("-version %q is no release: give one such as v0.1.0", version)
	}
	git := func(args ...string) error { return execute(ctx, ".", os.Environ(), "git", args...) }
	out, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err != nil || len(out) > 0 {
		return errors.Join(err, fmt.Errorf("the tree has changes that are not committed: commit or remove them:\n%s", out))
	}
	if err := git("switch", "--create", "release-"+version); err != nil {
		return err
	}
	if err := stamp(".", version, today); err != nil {
		return err
	}
	if err := git("commit", "--all", "--message", "release: "+version); err != nil {
		return err
	}
	dirs, err := folders(".")
	if err != nil {
		return err
	}
	if err := prepare(".", version); err != nil {
		return err
	}
	if err := git("commit", "--all", "--message", "release: go.mod files of "+version+", for the tags alone"); err != nil {
		return err
	}
	var tags []string
	for _, dir := range dirs {
		tag := strings.TrimPrefix(dir+"/"+version, "./")
		if err := git("tag", tag); err != nil {
			return err
		}
		if dir != "." {
			tags = append(tags, tag)
		}
	}
	fmt.Printf("\nNothing is pushed yet. Look at the two commits, and then push. The last command starts the workflow release:\n"+
		"git push origin release-%[1]s~1:main\ngit push origin %[2]s\ngit push origin %[1]s\n", version, strings.Join(tags, " "))
	return nil
}

// stamp writes the version, and the date into the changelog.
func stamp(root, version string, today time.Time) error {
	edit := func(name string, change func(string) (string, error)) error {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed, err := change(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.WriteFile(path, []byte(changed), 0o644)
	}
	for name, befores := range versioned {
		err := edit(name, func(text string) (string, error) {
			for _, before := range befores {
				head, rest, ok := strings.Cut("\n"+text, "\n"+before)
				if !ok || !number.MatchString(rest) {
					return "", fmt.Errorf("no line begins with %q and a version", before)
				}
				text = (head + "\n" + before + number.ReplaceAllString(rest, strings.TrimPrefix(version, "v")))[1:]
			}
			return text, nil
		})
		if err != nil {
			return err
		}
	}
	return edit("CHANGELOG.md", func(text string) (string, error) { return dated(text, strings.TrimPrefix(version, "v"), today) })
}

// dated is a changelog in which what was not released belongs to a version. If the version has a section already, as the first one, that section
// gets the date, and what was not released stays above it, for users of earlier builds.
func dated(text, version string, today time.Time) (string, error) {
	const unreleased = "## [Unreleased]\n"
	heading := fmt.Sprintf("## [%s] - %s\n", version, today.Format(time.DateOnly))
	const link = "https://github.com/jetpull/jetpull/releases/tag/v"
	switch own := "## [" + version + "]"; {
	case !strings.Contains(text, unreleased):
		return "", fmt.Errorf("it has no section %q", strings.TrimSpace(unreleased))
	case strings.Contains(text, own+"\n"):
		text = strings.Replace(text, unreleased, unreleased+"\nNothing yet.\n\n## Changes between builds before "+version+"\n", 1)
		return strings.Replace(text, own+"\n", heading, 1), nil
	case strings.Contains(text, own):
		return "", fmt.Errorf("it has a section of %s with a date: is it released?", version)
	}
	text = strings.Replace(text, unreleased, unreleased+"\n"+heading, 1)
	return strings.TrimRight(text, "\n") + fmt.Sprintf("\n[%s]: %s%[1]s\n", version, link), nil
}
