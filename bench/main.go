// Command bench runs Go benchmarks in rounds, and prints their figures with benchstat. In each round, all benchmarks of a package
// take turns, so that other load on the machine affects all of them alike. README.md explains the figures.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// settings are the values of the flags.
type settings struct {
	pkg, run, benchtime, column, against, out string
	rounds                                    int
	docs                                      bool
}

func main() {
	var s settings
	flag.StringVar(&s.pkg, "package", "./bench/client", "folder of the benchmarks")
	flag.StringVar(&s.run, "run", ".", "benchmarks to run, as for go test -bench")
	flag.StringVar(&s.benchtime, "benchtime", "1s", "as for go test: how long each benchmark is measured in a round, or Nx for N operations")
	flag.IntVar(&s.rounds, "rounds", 7, "rounds; from the second on with -short, which skips what needs no second one")
	flag.StringVar(&s.column, "col", "/client", "what the columns of the table differ in, as for benchstat -col")
	flag.StringVar(&s.against, "against", "", "compare this tree's code with that of a git revision, or of another checkout's folder, in turn")
	flag.StringVar(&s.out, "out", "out/bench", "folder for the results")
	flag.BoolVar(&s.docs, "docs", false, "also write bench/client.md and docs/bench.svg")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := s.check()
	if err == nil {
		err = s.measure(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (s settings) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags", flag.Arg(0))
	case s.rounds < 1:
		return fmt.Errorf("-rounds %d: must be at least 1", s.rounds)
	case s.docs && (s.run != "." || s.against != ""):
		return errors.New("-docs needs all benchmarks: leave -run and -against out")
	}
	return nil
}

// build is a compiled package of benchmarks.
type build struct{ name, program, results string }

// measure runs the rounds and prints the table. If a benchmark fails, the others still run.
func (s settings) measure(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "jetpull-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	// The folder also contains the benchmarks' stores, so that an interrupt leaves none behind. A database server may run as another user.
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	builds, err := s.compile(ctx, temp)
	if err != nil {
		return err
	}
	names, err := s.benchmarks(ctx, builds[len(builds)-1])
	if err != nil {
		return err
	}
	var errs []error
	ran := false
	for round := range s.rounds {
		for _, name := range names {
			for _, b := range builds {
				did, err := s.turn(ctx, b, name, names, round > 0)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s %s, round %d: %w", name, b.name, round+1, err))
				}
				if did {
					fmt.Fprintf(os.Stderr, "round %d of %d: %s %s\n", round+1, s.rounds, name, b.name)
				}
				ran = ran || did
				if ctx.Err() != nil {
					return errors.Join(append(errs, context.Cause(ctx))...)
				}
			}
		}
	}
	if !ran {
		return errors.Join(append(errs, fmt.Errorf("-run %s matches nothing in %s", s.run, strings.Join(names, ", ")))...)
	}
	table, err := s.table(ctx, builds)
	errs = append(errs, err)
	fmt.Printf("%s", table)
	if err = errors.Join(errs...); err != nil || s.against != "" || s.pkg != "./bench/client" {
		return err
	}
	return s.report(builds[0].results, table)
}

// compile builds the benchmarks. With -against, it first builds them with the code of the other tree.
func (s settings) compile(ctx context.Context, temp string) ([]build, error) {
	name := filepath.Base(s.pkg)
	compiled := func(label, workspace string) (build, error) {
		file := strings.TrimSuffix(name+"-"+label, "-")
		b := build{label, filepath.Join(temp, file+".test"), filepath.Join(s.out, file+".txt")}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.program, s.pkg)
		cmd.Env = os.Environ()
		if workspace != "" {
			cmd.Env = append(cmd.Env, "GOWORK="+workspace)
		}
		_, err := output(cmd)
		return b, errors.Join(err, os.WriteFile(b.results, nil, 0o644))
	}
	if s.against == "" {
		b, err := compiled("", "")
		return []build{b}, err
	}
	workspace, err := workspaceOf(ctx, s.pkg, s.against, temp)
	if err != nil {
		return nil, err
	}
	older, err := compiled("old", workspace)
	if err != nil {
		return nil, fmt.Errorf("the benchmarks on the code of %s: %w", s.against, err)
	}
	newer, err := compiled("new", "")
	return []build{older, newer}, err
}

// workspaceOf writes a go.work with the benchmarks of this tree, in which the modules of another tree replace those of this
// tree. It writes to neither tree.
func workspaceOf(ctx context.Context, pkg, against, temp string) (string, error) {
	tree := against
	if _, err := os.Stat(filepath.Join(against, "go.work")); err != nil {
		tree = filepath.Join(temp, "tree")
		script := `mkdir "$2" && git archive "$1" | tar -x -C "$2"`
		if _, err := output(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script, "bash", against, tree)); err != nil {
			return "", fmt.Errorf("-against %s is neither the folder of a checkout nor a revision: %w", against, err)
		}
	}
	own, err := output(exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Path}} {{.Module.Dir}}", pkg))
	if err != nil {
		return "", err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(own), " ")
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}}={{.Dir}}")
	list.Dir, list.Env = tree, append(os.Environ(), "GOWORK=")
	theirs, err := output(list)
	if err != nil {
		return "", err
	}
	edit := []string{"work", "edit"}
	for module := range strings.Lines(theirs) {
		if module = strings.TrimSpace(module); !strings.HasPrefix(module, path+"=") {
			edit = append(edit, "-replace", module)
		}
	}
	file := filepath.Join(temp, "go.work")
	for _, args := range [][]string{{"work", "init", dir}, append(edit, file)} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "GOWORK="+file)
		if _, err := output(cmd); err != nil {
			return "", err
		}
	}
	sums, err := os.ReadFile("go.work.sum")
	return file, errors.Join(err, os.WriteFile(file+".sum", sums, 0o600))
}

// benchmarks returns the names of the top-level benchmarks.
func (s settings) benchmarks(ctx context.Context, b build) (names []string, err error) {
	list, err := output(exec.CommandContext(ctx, b.program, "-test.list", "^Benchmark"))
	for name := range strings.Lines(list) {
		if strings.HasPrefix(name, "Benchmark") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, err
}

// turn runs one of all benchmarks, or its parts that match -run, and appends its figures to the results.
func (s settings) turn(ctx context.Context, b build, name string, all []string, short bool) (ran bool, err error) {
	others := slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == name })
	cmd := exec.CommandContext(ctx, b.program, "-test.run", "^$", "-test.bench", s.run, "-test.skip", "^("+strings.Join(others, "|")+")$",
		"-test.benchtime", s.benchtime, "-test.timeout", "0", fmt.Sprintf("-test.short=%t", short))
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(b.program))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := output(cmd)
	file, openErr := os.OpenFile(b.results, os.O_APPEND|os.O_WRONLY, 0)
	if openErr != nil {
		return false, errors.Join(err, openErr)
	}
	_, writeErr := file.WriteString(out)
	return strings.Contains(out, "\n"+name), errors.Join(err, writeErr, file.Close())
}

// table compares the columns, or the builds, with benchstat.
func (s settings) table(ctx context.Context, builds []build) (string, error) {
	args := []string{"tool", "benchstat"}
	if s.against == "" {
		args = append(args, "-col", s.column, builds[0].results)
	}
	if s.against != "" {
		for _, b := range builds {
			args = append(args, b.name+"="+b.results)
		}
	}
	return output(exec.CommandContext(ctx, "go", args...))
}

// output runs a command, and returns its standard output. The error contains all output of the command.
func output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}
