// Package deploylint checks the files in deploy with the parsers of the programs that read them: a Dockerfile with BuildKit's
// parser and linter, a compose file with Compose's loader, Kubernetes manifests with the types of their API, without unknown
// fields, a Helm chart with helm's linter and as manifests, and a systemd unit with systemd-analyze. It also checks that they
// confine the process: see confine_test.go. It has tests only.
package deploylint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// checks maps the files of the folder to their checks.
var checks = map[string]func(path string) error{
	"Dockerfile": dockerfile, "release.Dockerfile": dockerfile,
	"compose.yaml": compose, "compose-relay.yaml": compose, "compose-feed.yaml": compose, "compose-console.yaml": compose,
	"kubernetes.yaml": kubernetes, "exporter.yaml": kubernetes, "keda.yaml": kubernetes, chartDir: chart,
	unitFile: unit,
}

func dockerfile(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	var found []error
	rules := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) {
		line := 0
		if len(at) > 0 {
			line = at[0].Start.Line
		}
		found = append(found, fmt.Errorf("line %d: %s: %s", line, rule, message))
	}})
	_, _, err = instructions.Parse(parsed.AST, rules)
	return errors.Join(append(found, err)...)
}

func compose(path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithEnv([]string{
		"JETPULL_BROKER_ADMIN_TOKEN=secret", "JETPULL_RELAY_ADMIN_TOKEN=secret",
		"JETPULL_CONSOLE_TOKEN=secret", "JETPULL_FEED_PASSWORD=secret", "JETPULL_FEED_HANDLER=http://classify/item",
	}))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	return confinedServices(project)
}

func kubernetes(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return manifests(raw)
}

// manifests decodes each document with the type of its kind. A field that the type lacks is an error.
func manifests(raw []byte) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme), networkingv1.AddToScheme(scheme),
		policyv1.AddToScheme(scheme), monitoringv1.AddToScheme(scheme)); err != nil {
		return err
	}
	scheme.AddKnownTypes(kedaVersion, &ScaledObject{}, &TriggerAuthentication{})
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for i, manifest := range bytes.Split(raw, []byte("\n---\n")) {
		object, _, err := strict.Decode(manifest, nil, nil)
		if err == nil {
			err = confinedPod(object)
		}
		if err != nil {
			return fmt.Errorf("manifest %d: %w", i+1, err)
		}
	}
	return nil
}
