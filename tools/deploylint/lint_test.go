package deploylint

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ownFiles is the folder of the project's files.
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
	for name, check := range checks {
		if err := check(filepath.Join(ownFiles, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
		{"compose-relay.yaml", "read_only: true", "read_only: false", "service relay1: it has no read_only"},
		{"compose-relay.yaml", "n3: {condition", "n4: {condition", "n4"},
		{"compose-feed.yaml", "cap_drop: [ALL]", "cap_drop: [CHOWN]", "service postgres: it has no cap_drop"},
		{"compose-feed.yaml", "healthcheck:", "health_check:", "health_check"},
		{"compose-console.yaml", "127.0.0.1:8222:8222", "8222:8222", "service console: it has no 127.0.0.1"},
		{"kubernetes.yaml", "readinessProbe:", "readynessProbe:", "readynessProbe"},
		{"kubernetes.yaml", "kind: Service", "kind: Servise", "Servise"},
		{"kubernetes.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "no automountServiceAccountToken"},
		{"kubernetes.yaml", "type: RuntimeDefault", "type: Unconfined", "no seccompProfile"},
		{"kubernetes.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "no runAsNonRoot"},
		{"kubernetes.yaml", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "no allowPrivilegeEscalation: false in container broker"},
		{"kubernetes.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "no readOnlyRootFilesystem"},
		{"kubernetes.yaml", `drop: ["ALL"]`, `drop: ["CHOWN"]`, "no capabilities"},
		{"exporter.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "no readOnlyRootFilesystem: true in container exporter"},
		{"keda.yaml", "cooldownPeriod:", "coolDownPeriod:", "coolDownPeriod"},
		{"helm/jetpull/Chart.yaml", "version: 0.1.0", "version: none", "helm lint"},
		{"helm/jetpull/values.yaml", "replicas: 2", "replicas: two", "helm lint"},
		{"helm/jetpull/ci/nats-values.yaml", "replicas: 3", "replica: 3", "additional properties 'replica' not allowed"},
		{"helm/jetpull/templates/workloads.yaml", "livenessProbe:", "liveProbe:", "with nats-values.yaml: manifest"},
		{"helm/jetpull/templates/workloads.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "no runAsNonRoot"},
		{"helm/jetpull/templates/workloads.yaml", "$v.resources", "$v.resource", "has no entry for key \"resource\""},
		{"helm/jetpull/templates/access.yaml", "maxUnavailable:", "maxUnavailables:", "maxUnavailables"},
		{"helm/jetpull/templates/access.yaml", "averageUtilization:", "average:", "with all-values.yaml: manifest"},
		{"helm/jetpull/templates/access.yaml", "authorization:", "authorisation:", "authorisation"},
		{"helm/jetpull/templates/access.yaml", "policyTypes:", "policies:", "policies"},
		{"helm/jetpull/templates/scale.yaml", "maxReplicaCount:", "maxReplicas:", "maxReplicas"},
		{"helm/jetpull/ci/all-values.yaml", "console: {enabled: true", "console: {enabled: false", "set console.enabled and nats.url"},
		{"helm/jetpull/ci/all-values.yaml", "handler: http://classify/item", `handler: ""`, "feed.handler is missing"},
		{unitFile, "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n", "", "more exposed than 20 tenths"},
		{unitFile, "\nCapabilityBoundingSet=\n", "\n", "more exposed than 20 tenths"},
		{unitFile, "LockPersonality=", "LockPersonalty=", "LockPersonalty"},
	} {
		t.Run(c.file+" "+c.want, func(t *testing.T) {
			if c.file == unitFile {
				needSystemd(t)
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(ownFiles)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.file)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(raw), c.text) {
				t.Fatalf("%s has no %q", c.file, c.text)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(raw), c.text, c.wrong, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			name := c.file
			if strings.HasPrefix(name, chartDir) {
				name = chartDir
			}
			if err := checks[name](filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %q: %v", c.file, c.wrong, err)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the rendered chart to testdata")

// The rendered chart is in testdata. A change there shows its effect on a cluster, and the tests of the command use its arguments.
func TestRenderedChart(t *testing.T) {
	sets, err := filepath.Glob(filepath.Join(ownFiles, "helm/jetpull/ci/*-values.yaml"))
	if err != nil || len(sets) == 0 {
		t.Fatal(sets, err)
	}
	for _, set := range sets {
		got, err := render(filepath.Join(ownFiles, "helm/jetpull"), set)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", strings.Replace(filepath.Base(set), "-values", "", 1))
		if *update {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the chart with %s: look at the difference after (cd tools && GOWORK=off go test ./deploylint -update)",
				golden, filepath.Base(set))
		}
	}
}
