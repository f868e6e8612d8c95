package main

import (
	"os"
	"os/exec"
	"testing"
)

// needTool skips a test on a machine that has no such program. In ci, where the environment has CI=true, the test fails:
// .ci/run installs what tests need.
func needTool(t *testing.T, name, debianPackage string) {
	t.Helper()
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing, and ci skips no test: install Debian's package %s", name, debianPackage)
	default:
		t.Skipf("skipped, since %s is missing: install Debian's package %s", name, debianPackage)
	}
}
