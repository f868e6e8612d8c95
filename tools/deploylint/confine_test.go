package deploylint

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	unitFile = "jetpull-broker.service"
	// mostExposed is the maximum exposure that systemd-analyze may report for the unit, in tenths: 2.0 of 10.
	mostExposed = "20"
)

// confinedServices returns an error for each privilege that a service of a compose file has but does not need.
func confinedServices(project *types.Project) error {
	var errs []error
	for _, s := range project.Services {
		want := func(ok bool, what string) {
			if !ok {
				errs = append(errs, fmt.Errorf("service %s: it has no %s", s.Name, what))
			}
		}
		want(slices.Contains(s.CapDrop, "ALL"), "cap_drop: [ALL]")
		want(s.ReadOnly, "read_only: true")
		want(slices.Contains(s.SecurityOpt, "no-new-privileges:true"), `security_opt: ["no-new-privileges:true"]`)
		want(!s.Privileged, "privileged: false")
		for _, p := range s.Ports {
			want(p.HostIP == "127.0.0.1", "127.0.0.1 before the published port "+p.Published)
		}
	}
	return errors.Join(errs...)
}

// confinedPod returns an error for each privilege that the pods of a manifest have but do not need. It returns nil for a kind without pods.
func confinedPod(object runtime.Object) error {
	var pod corev1.PodSpec
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		pod = o.Spec.Template.Spec
	case *appsv1.Deployment:
		pod = o.Spec.Template.Spec
	case *corev1.Service, *autoscalingv2.HorizontalPodAutoscaler, *networkingv1.NetworkPolicy, *policyv1.PodDisruptionBudget,
		*monitoringv1.ServiceMonitor, *ScaledObject, *TriggerAuthentication:
		return nil
	default:
		return fmt.Errorf("no rule is known for %T: add one to confinedPod", object)
	}
	var errs []error
	want := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("it has no %s", what))
		}
	}
	is := func(b *bool, value bool) bool { return b != nil && *b == value }
	want(is(pod.AutomountServiceAccountToken, false), "automountServiceAccountToken: false")
	want(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "network, processes and IPC of its own")
	sc := pod.SecurityContext
	want(sc != nil && is(sc.RunAsNonRoot, true), "runAsNonRoot: true")
	want(sc != nil && sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"seccompProfile: {type: RuntimeDefault}")
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		sc := c.SecurityContext
		want(sc != nil && is(sc.AllowPrivilegeEscalation, false), "allowPrivilegeEscalation: false in container "+c.Name)
		want(sc != nil && is(sc.ReadOnlyRootFilesystem, true), "readOnlyRootFilesystem: true in container "+c.Name)
		want(sc != nil && sc.Capabilities != nil && slices.Contains(sc.Capabilities.Drop, "ALL"), `capabilities: {drop: ["ALL"]} in container `+c.Name)
		want(sc != nil && sc.SeccompProfile == nil && !is(sc.Privileged, true), "seccompProfile of the pod in container "+c.Name)
	}
	return errors.Join(errs...)
}

// unit checks a unit with systemd-analyze, without a running systemd. Its error wraps exec.ErrNotFound on a machine without systemd-analyze.
func unit(path string) error {
	cmd := exec.Command("systemd-analyze", "--no-pager", "security", "--offline=true", "--threshold="+mostExposed, path)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: install Debian's package systemd", err)
	case complaints.Len() > 0:
		// systemd ignores a directive that it does not know.
		return fmt.Errorf("systemd-analyze: %s", strings.TrimSpace(complaints.String()))
	case err != nil:
		var left []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "✗") || strings.Contains(line, "Overall") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		return fmt.Errorf("systemd-analyze: %w: more exposed than %s tenths:\n%s", err, mostExposed, strings.Join(left, "\n"))
	}
	return nil
}
