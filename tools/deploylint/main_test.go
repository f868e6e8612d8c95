package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ownFiles are the project's.
const ownFiles = "../../deploy"

// needSystemd skips a test on a machine without systemd-analyze, and fails it in ci, which skips no test.
func needSystemd(t *testing.T) {
	t.Helper()
	switch _, err := exec.LookPath("systemd-analyze"); {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%v: ci skips no test: install Debian's package systemd", err)
	default:
		t.Skipf("skipped, since systemd-analyze is missing: install Debian's package systemd")
	}
}

// The project's own files are clean.
func TestLint(t *testing.T) {
	needSystemd(t)
	if err := lint(ownFiles); err != nil {
		t.Fatal(err)
	}
}

// A file that is wrong, or lets a process do more than it needs, is reported by name.
func TestLintFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ file, text, wrong, want string }{
		{"Dockerfile", "USER 65532:65532", "USER", "USER requires"},
		{"Dockerfile", " AS build", " as build", "FromAsCasing"},
		{"release.Dockerfile", "USER 65532:65532", "USER", "USER requires"},
		{"compose.yaml", "depends_on:", "depends-on:", "depends-on"},
		{"compose.yaml", "cap_drop: [ALL]", "cap_drop: [CHOWN]", "service n1: it has no cap_drop"},
		{"compose.yaml", "read_only: true", "read_only: false", "service broker1: it has no read_only"},
		{"compose.yaml", "no-new-privileges:true", "no-new-privileges:false", "service credentials: it has no security_opt"},
		{"compose.yaml", "127.0.0.1:8082:", "8082:", "service broker2: it has no 127.0.0.1 before the published port 8082"},
		{"kubernetes.yaml", "readinessProbe:", "readynessProbe:", "readynessProbe"},
		{"kubernetes.yaml", "kind: Service", "kind: Servise", "Servise"},
		{"kubernetes.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "no automountServiceAccountToken"},
		{"kubernetes.yaml", "type: RuntimeDefault", "type: Unconfined", "no seccompProfile"},
		{"kubernetes.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "no runAsNonRoot"},
		{"kubernetes.yaml", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "no allowPrivilegeEscalation: false in container broker"},
		{"kubernetes.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "no readOnlyRootFilesystem"},
		{"kubernetes.yaml", `drop: ["ALL"]`, `drop: ["CHOWN"]`, "no capabilities"},
		{"exporter.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "no readOnlyRootFilesystem: true in container exporter"},
		{unitFile, "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n", "", "more exposed than 20 tenths"},
		{unitFile, "\nCapabilityBoundingSet=\n", "\n", "more exposed than 20 tenths"},
		{unitFile, "LockPersonality=", "LockPersonalty=", "LockPersonalty"},
	} {
		t.Run(c.file+" "+c.want, func(t *testing.T) {
			if c.file == unitFile {
				needSystemd(t)
			}
			dir := t.TempDir()
			for _, name := range []string{"Dockerfile", "release.Dockerfile", "compose.yaml", "kubernetes.yaml", "exporter.yaml", unitFile} {
				raw, err := os.ReadFile(filepath.Join(ownFiles, name))
				if err != nil {
					t.Fatal(err)
				}
				text := string(raw)
				if name == c.file {
					if !strings.Contains(text, c.text) {
						t.Fatalf("%s has no %q", name, c.text)
					}
					text = strings.Replace(text, c.text, c.wrong, 1)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := lint(dir); err == nil || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %q: %v", c.file, c.wrong, err)
			}
		})
	}
}
