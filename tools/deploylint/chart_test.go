package deploylint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const (
	chartDir = "helm/jetpull"
	// release and namespace are the values with which the tests render the chart.
	release, namespace = "test", "default"
)

// chart checks a Helm chart with helm's linter. It also renders the chart with each file of values in its folder ci, and checks the manifests.
func chart(dir string) error {
	sets, err := filepath.Glob(filepath.Join(dir, "ci", "*-values.yaml"))
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		return fmt.Errorf("%s has no values to render the chart with", filepath.Join(dir, "ci"))
	}
	var errs []error
	for _, set := range sets {
		text, err := render(dir, set)
		if err == nil {
			err = manifests(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("with %s: %w", filepath.Base(set), err))
		}
	}
	return errors.Join(errs...)
}

// render lints a chart with the values of a file, and returns the manifests that helm would send.
func render(dir, set string) ([]byte, error) {
	raw, err := os.Open(set)
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }() // the file was only read
	values, err := loader.LoadValues(raw)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range lint.RunAll(dir, values, namespace).Messages {
		if m.Severity >= support.WarningSev {
			errs = append(errs, fmt.Errorf("helm lint: %s: %w", m.Path, m.Err))
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	c, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	c.Metadata.Version, c.Metadata.AppVersion = "0.0.0", "v0.0.0" // testdata does not change with each release
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), c, all)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); strings.HasSuffix(name, ".yaml") && text != "" {
			out = append(out, strings.TrimPrefix(text, "---\n"))
		}
	}
	return []byte(strings.Join(out, "\n---\n") + "\n"), nil
}
