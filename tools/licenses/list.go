package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// own is the path of the root module and begins those of all others.
const own = "github.com/jetpull/jetpull"

// platforms are those of .goreleaser.yaml.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// holding is something that the command holds: a module, Go's standard library, or a folder with files of others.
type holding struct {
	name    string // a module with its version
	root    string
	folders map[string]bool // those of its packages, each in root
}

// list returns what the command is built of on all platforms, sorted by name.
func list(root string) ([]*holding, error) {
	all := map[string]*holding{}
	add := func(name, root, folder string) {
		if all[name] == nil {
			all[name] = &holding{name: name, root: root, folders: map[string]bool{}}
		}
		all[name].folders[folder] = true
	}
	goroot, err := output(root, nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	goroot = strings.TrimSpace(goroot)
	add("Go standard library", goroot, goroot)
	for _, platform := range platforms {
		goos, goarch, _ := strings.Cut(platform, "/")
		// Without the workspace: the versions are those of the command's go.mod.
		out, err := output(filepath.Join(root, "cmd", "jetpull"), []string{"GOWORK=off", "GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"},
			"list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}", ".")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			if len(f) != 4 {
				continue // the standard library
			}
			if f[0] != own && !strings.HasPrefix(f[0], own+"/") {
				add(f[0]+" "+f[1], f[2], f[3])
			} else if dir := filepath.Join(f[3], "thirdparty"); exists(dir) {
				add("files of others in "+f[0]+filepath.ToSlash(strings.TrimPrefix(dir, f[2])), dir, dir)
			}
		}
	}
	var sorted []*holding
	for _, h := range all {
		sorted = append(sorted, h)
	}
	slices.SortFunc(sorted, func(a, b *holding) int { return strings.Compare(a.name, b.name) })
	return sorted, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// output runs the go command.
func output(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return string(out), nil
}

// noticeName matches the names of files that a licence asks to pass on.
var noticeName = regexp.MustCompile(`(?i)^[a-z0-9_.-]*(licen[cs]e|copying|copyright|notice|patents)[a-z0-9_.-]*$`)

// texts reads the notices of a holding: those in its root, and in the folders between it and its packages.
func (h *holding) texts() ([]string, error) {
	folders := map[string]bool{h.root: true}
	for folder := range h.folders {
		for ; len(folder) > len(h.root); folder = filepath.Dir(folder) {
			folders[folder] = true
		}
	}
	var names []string
	for folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type() != fs.ModeDir && noticeName.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
				names = append(names, filepath.Join(folder, e.Name()))
			}
		}
	}
	slices.Sort(names)
	var texts []string
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if text := tidy(string(b)); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("%s: %s has no licence: ask its authors, or use another module", h.name, h.root)
	}
	return texts, nil
}

// tidy removes what differs between copies of a text and says nothing: the ends of lines, and empty lines around it.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \t\r\n\f"))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// notices is the file: all names, and each text once under the names that it is for.
func notices(holdings []*holding) ([]byte, error) {
	names := map[string][]string{} // by text
	var order []string
	var failures []error
	var out bytes.Buffer
	out.WriteString("The jetpull command holds software of others. Their licence notices follow, each under the names that it is for.\n\n")
	for _, h := range holdings {
		texts, err := h.texts()
		failures = append(failures, err)
		for _, text := range texts {
			if names[text] == nil {
				order = append(order, text)
			}
			names[text] = append(names[text], h.name)
		}
		out.WriteString(h.name + "\n")
	}
	for _, text := range order {
		rule := strings.Repeat("=", 80)
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(names[text], "\n"), rule, text)
	}
	return out.Bytes(), errors.Join(failures...)
}

// compare says which names were added and which are gone.
func compare(old, now []byte) error {
	if bytes.Equal(old, now) {
		return nil
	}
	listed := func(text []byte) []string {
		head, _, _ := strings.Cut(string(text), "\n"+strings.Repeat("=", 80))
		return strings.Split(head, "\n")
	}
	var differences []string
	for _, name := range listed(now) {
		if !slices.Contains(listed(old), name) {
			differences = append(differences, "+ "+name)
		}
	}
	for _, name := range listed(old) {
		if !slices.Contains(listed(now), name) {
			differences = append(differences, "- "+name)
		}
	}
	return fmt.Errorf("%s does not fit what the command is built of: run make licenses and commit the file\n%s", noticesFile,
		strings.Join(differences, "\n"))
}
