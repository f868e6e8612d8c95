package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// apart are the modules for which no promise is made: tests, measurements and examples.
var apart = []string{"test", "bench", "examples"}

// public lists the packages below root that users can import: neither commands nor internal, nor in a module that is apart.
func public(root string) (packages []string, err error) {
	err = filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		folder, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		name := entry.Name()
		if folder != "." && (slices.Contains(apart, folder) || strings.HasPrefix(name,
			".") || name == "internal" || name == "testdata" || name == "tools") {
			return filepath.SkipDir
		}
		ok, err := library(dir)
		if ok {
			packages = append(packages, path.Join(own, folder))
		}
		return err
	})
	return packages, err
}

// library reports whether dir has a package that is no command.
func library(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly)
		if err != nil {
			return false, err
		}
		return file.Name.Name != "main", nil
	}
	return false, nil
}

// whitebox are the modules whose tests see unexported names, so that they cannot be a module of their own. The go.sum of a program that is
// built of one names the modules that these tests need. Its go.mod does not.
var whitebox = []string{own + "/broker", own + "/relay", own + "/feed"}

// user is a module that imports one public package.
type user struct {
	pkg      string
	mod, sum string   // its go.mod and go.sum after go mod tidy
	builtOf  []string // the modules that its program is built of
}

// use makes a module in dir that imports pkg, builds and tests it as its user does, and upgrades it to the version next.
func use(ctx context.Context, dir string, env []string, pkg, version, next string) (user, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return user{}, err
	}
	text := "package main\n\nimport _ \"" + pkg + "\"\n\nfunc main() {}\n"
	test := "package main\n\nimport \"testing\"\n\nfunc TestRuns(*testing.T) { main() }\n"
	for name, text := range map[string]string{"main.go": text, "main_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return user{}, err
		}
	}
	if err := execute(ctx, dir, env, "go", "mod", "init", "example.com/user"); err != nil {
		return user{}, err
	}
	for _, v := range []string{version, next} {
		for _, args := range [][]string{{"get", pkg + "@" + v}, {"mod", "tidy"}, {"build", "-o", os.DevNull, "."}, {"test", "."}} {
			if err := execute(ctx, dir, env, "go", args...); err != nil {
				return user{}, err
			}
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return user{}, err
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return user{}, err
	}
	if err := upgraded(string(mod), next); err != nil {
		return user{}, err
	}
	built, err := modules(ctx, dir, env)
	return user{pkg, string(mod), string(sum), built}, err
}

// upgraded reports modules of ours that a go.mod does not ask for at version.
func upgraded(text, version string) error {
	mod, err := modfile.Parse("go.mod", []byte(text), nil)
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range mod.Require {
		if within(r.Mod.Path, own) && r.Mod.Version != version {
			failures = append(failures, fmt.Errorf("after the upgrade to %s go.mod asks for %s %s: its own modules must ask for each other at one "+
				"version; see prepare", version, r.Mod.Path, r.Mod.Version))
		}
	}
	return errors.Join(failures...)
}

// unneeded reports modules of ours that a user's module names for nothing: in go.mod one of which the user's program has no package, in
// go.sum one of which no public package is built.
func unneeded(users []user) error {
	var all []string
	for _, u := range users {
		all = append(all, u.builtOf...)
	}
	var failures []error
	for _, u := range users {
		for _, name := range named(u.mod) {
			if !slices.Contains(u.builtOf, name) {
				failures = append(failures, fmt.Errorf("go.mod of a user of %s asks for %s, and the user's program has no package of it: move the tests that "+
					"import it to a module of their own", u.pkg, name))
			}
		}
		ofWhitebox := slices.ContainsFunc(whitebox, func(module string) bool { return slices.Contains(u.builtOf, module) })
		for _, name := range named(u.sum) {
			if !slices.Contains(all, name) && !ofWhitebox {
				failures = append(failures, fmt.Errorf("go.sum of a user of %s has %s, of which no public package is built: move the tests that import it to "+
					"a module of their own", u.pkg, name))
			}
		}
	}
	return errors.Join(failures...)
}

// within reports whether a package is module or below it.
func within(pkg, module string) bool { return pkg == module || strings.HasPrefix(pkg, module+"/") }

// modules are those whose packages the program in dir is built of.
func modules(ctx context.Context, dir string, env []string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return slices.Compact(slices.Sorted(strings.FieldsSeq(string(out)))), nil
}

// named are the modules of ours that a go.mod or go.sum names as a word.
func named(text string) (ours []string) {
	for word := range strings.FieldsSeq(text) {
		if within(word, own) && !slices.Contains(ours, word) {
			ours = append(ours, word)
		}
	}
	return ours
}

// useAll makes a user of each public package of the tree. It reports the failures of all.
func useAll(ctx context.Context, tree, dir string, env []string, version, next string) error {
	packages, err := public(tree)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errors.New("the tree has no public package")
	}
	var users []user
	var failures []error
	for i, pkg := range packages {
		u, err := use(ctx, filepath.Join(dir, fmt.Sprintf("user-%d", i)), env, pkg, version, next)
		if err != nil {
			failures = append(failures, fmt.Errorf("a user of %s: %w", pkg, err))
			continue
		}
		fmt.Printf("user of %s\n  go.mod: %s\n  go.sum: %s\n", pkg, strings.Join(named(u.mod), " "), strings.Join(named(u.sum), " "))
		users = append(users, u)
	}
	return errors.Join(append(failures, unneeded(users))...)
}
