// Command release prepares the modules of this repository for a version, and proves that users can install it.
//
//	release -version v0.1.0 commit    # on a branch of its own: the version, go.mod files that ask for each other at it, and tags
//	release -version v0.1.0 check     # go install and go get from a module proxy in a folder, made of the tree
//
// Run it from the root of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// own is the path of the root module and begins those of all others.
const own = "github.com/jetpull/jetpull"

// command is the package that users install.
const command = own + "/cmd/jetpull"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "v0.1.0", "the version of all modules")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "commit":
		return commit(ctx, *version, time.Now())
	case "check":
		return check(ctx, *version)
	}
	return fmt.Errorf("%q is neither commit nor check", flags.Arg(0))
}

// folders are those of the modules that go.work names.
func folders(root string) ([]string, error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, use := range work.Use {
		dirs = append(dirs, filepath.ToSlash(filepath.Clean(use.Path)))
	}
	return dirs, nil
}

// prepare rewrites the go.mod files below root: no replace directives, and each other's modules at version.
func prepare(root, version string) error {
	dirs, err := folders(root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		name := filepath.Join(root, dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if text, err = released(name, text, version); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// released is a go.mod as a release has it.
func released(name string, text []byte, version string) ([]byte, error) {
	mod, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range mod.Replace {
		if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return nil, err
		}
	}
	for _, r := range mod.Require {
		if r.Mod.Path == own || strings.HasPrefix(r.Mod.Path, own+"/") {
			if err := mod.AddRequire(r.Mod.Path, version); err != nil {
				return nil, err
			}
		}
	}
	mod.Cleanup()
	return mod.Format()
}

// check installs the command, and builds and tests a program on each public package, as a user does: with no checkout, from a proxy. Each user
// then upgrades to the next patch version, which has the same code.
func check(ctx context.Context, version string) (err error) {
	dir, err := os.MkdirTemp("", "jetpull-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	next, err := nextPatch(version)
	if err != nil {
		return err
	}
	tree, proxy := filepath.Join(dir, "tree"), filepath.Join(dir, "proxy")
	if err := export(ctx, tree); err != nil {
		return err
	}
	for _, v := range []string{version, next} {
		if err := publishAll(tree, proxy, v); err != nil {
			return err
		}
	}
	user := filepath.Join(dir, "user")
	if err := os.Mkdir(user, 0o755); err != nil {
		return err
	}
	env, err := environment(ctx, dir, proxy)
	if err != nil {
		return err
	}
	if err := execute(ctx, user, env, "go", "install", command+"@"+version); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "bin", "jetpull"), "version").Output()
	if err != nil {
		return fmt.Errorf("jetpull version: %w", err)
	}
	if got := strings.TrimSpace(string(out)); got != "jetpull "+version {
		return fmt.Errorf("jetpull version prints %q, and the tag is %s: see func version in cmd/jetpull/main.go", got, version)
	}
	return useAll(ctx, tree, dir, env, version, next)
}

// nextPatch is the version after one, with the last number one higher.
func nextPatch(version string) (string, error) {
	minor := semver.MajorMinor(version)
	patch, err := strconv.Atoi(strings.TrimPrefix(version, minor+"."))
	if minor == "" || err != nil {
		return "", fmt.Errorf("-version %q is no release: give one such as v0.1.0", version)
	}
	return fmt.Sprintf("%s.%d", minor, patch+1), nil
}

// publishAll puts all modules of the tree into the proxy. The go.mod files in the tree are those of the version then.
func publishAll(tree, proxy, version string) error {
	if err := prepare(tree, version); err != nil {
		return err
	}
	dirs, err := folders(tree)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if err := publish(filepath.Join(tree, d), proxy, version); err != nil {
			return err
		}
	}
	return nil
}

// export copies the files of the tree, as they are now, that git knows or would add.
func export(ctx context.Context, to string) error {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not yet committed
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// publish puts the module in dir into a proxy of files.
func publish(dir, proxy, version string) error {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(text), Version: version}
	to := filepath.Join(proxy, m.Path, "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	list, err := os.ReadFile(filepath.Join(to, "list"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for name, content := range map[string]string{"list": string(list) + version + "\n", version + ".info": info, version + ".mod": string(text)} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromDir(file, m, dir); err != nil {
		return errors.Join(fmt.Errorf("zip of %s: %w", m.Path, err), file.Close())
	}
	return file.Close()
}

// environment is that of a user whose proxy has the release, and who has downloaded nothing yet. Whatever this machine
// has downloaded is taken from there.
func environment(ctx context.Context, dir, proxy string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download")+","+upstream,
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GOBIN="+filepath.Join(dir, "bin"),
		"GONOSUMDB="+own+","+own+"/*", "GOWORK=off", "GOFLAGS=-modcacherw -mod=mod",
	), nil
}

func execute(ctx context.Context, dir string, env []string, name string, args ...string) error {
	fmt.Println(filepath.Base(name), strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
