package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/relay"
)

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../deploy", name))
	require.NoError(t, err)
	return string(b)
}

// parses holds arguments of the command against its flags, and against what configurations of broker and relay may be.
func parses(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRootCommand().Find(args)
	require.NoError(t, err, args)
	require.NoError(t, cmd.ParseFlags(rest), args)
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), args)
	given := map[string]string{}
	sources := service.Sources{Flags: given, Env: func(name string) (string, bool) {
		return "secret", name == "JETPULL_BROKER_ADMIN_TOKEN" || name == "JETPULL_RELAY_ADMIN_TOKEN"
	}}
	switch cmd.CommandPath() {
	case "jetpull broker":
		givenFlags(cmd, broker.Settings(), given)
		_, err = broker.LoadConfig(sources)
	case "jetpull relay":
		givenFlags(cmd, relay.Settings(), given)
		_, err = relay.LoadConfig(sources)
	}
	require.NoError(t, err, args)
}

func givenFlags[S interface{ Flag() string }](cmd *cobra.Command, settings []S, given map[string]string) {
	for _, s := range settings {
		if f := cmd.Flags().Lookup(s.Flag()); f != nil && f.Changed {
			given[s.Flag()] = f.Value.String()
		}
	}
}

type composed struct {
	Image, Build any
	Command      []string
	Environment  map[string]string
	DependsOn    map[string]any `yaml:"depends_on"`
	Networks     []string
	NetworkMode  string `yaml:"network_mode"`
	Volumes      []string
	Ports        []string
	Healthcheck  struct{ Test []string }
}

func TestCompose(t *testing.T) {
	var file struct {
		Services map[string]composed
		Networks map[string]struct{ Internal bool }
		Volumes  map[string]any
	}
	require.NoError(t, yaml.Unmarshal([]byte(readDeploy(t, "compose.yaml")), &file))
	require.Len(t, file.Services, 6)
	require.True(t, file.Networks["nats"].Internal)
	credentials := file.Services["credentials"]
	require.Equal(t, "none", credentials.NetworkMode)
	for name, s := range file.Services {
		for _, v := range s.Volumes {
			if volume, _, _ := strings.Cut(v, ":"); !strings.HasPrefix(volume, ".") {
				require.Contains(t, file.Volumes, volume)
			}
		}
		switch {
		case name == "credentials":
			script, _, _ := strings.Cut(s.Volumes[0], ":")
			readDeploy(t, script)
			require.Subset(t, s.Volumes,
				[]string{"nats-config:" + s.Command[0], "broker-config:" + s.Command[1], "relay-config:" + s.Command[2]})
		case strings.HasPrefix(name, "broker"):
			parses(t, s.Command)
			require.Contains(t, s.Command, "/etc/jetpull/broker.cfg")
			require.Equal(t, []string{"broker-config:/etc/jetpull:ro"}, s.Volumes, "the passwords of the cluster's routes are not the brokers'")
			for _, host := range []string{"n1", "n2", "n3"} {
				require.Contains(t, s.DependsOn, host)
			}
			require.Contains(t, s.Environment, "JETPULL_BROKER_ADMIN_TOKEN")
			require.True(t, strings.HasSuffix(s.Ports[0], ":8080"))
		default:
			require.NotEmpty(t, s.Healthcheck.Test)
			require.Equal(t, []string{"--name", name, "--config", "/etc/nats-cluster/nats.conf"}, s.Command)
			require.Contains(t, s.Volumes, "nats-config:/etc/nats-cluster:ro")
			require.Equal(t, []string{"nats"}, s.Networks, "only brokers reach it")
			require.Empty(t, s.Ports)
			require.Contains(t, s.DependsOn, "credentials")
		}
	}
}

// The commands of relay, feed and console in compose files, and of the rendered Helm chart, are ones that the command accepts.
func TestDeployedCommands(t *testing.T) {
	var commands [][]string
	for name, want := range map[string]int{"compose-relay.yaml": 2, "compose-feed.yaml": 2, "compose-console.yaml": 1} {
		var file struct{ Services map[string]composed }
		require.NoError(t, yaml.Unmarshal([]byte(readDeploy(t, name)), &file))
		before := len(commands)
		for _, s := range file.Services {
			if s.Image == "jetpull" {
				commands = append(commands, s.Command)
			}
		}
		require.Len(t, commands, before+want, name)
	}
	for name, want := range map[string]int{"embedded.yaml": 2, "nats.yaml": 2, "all.yaml": 4} {
		before := len(commands)
		decoder := yaml.NewDecoder(strings.NewReader(readDeploy(t, "../tools/deploylint/testdata/"+name)))
		for {
			var m struct {
				Spec struct {
					Template struct {
						Spec struct{ Containers []struct{ Args []string } }
					}
				}
			}
			err := decoder.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if m.Spec.Template.Spec.Containers != nil {
				require.NoError(t, err)
				commands = append(commands, m.Spec.Template.Spec.Containers[0].Args)
			}
		}
		require.Len(t, commands, before+want, name)
	}
	for _, args := range commands {
		parses(t, slices.DeleteFunc(args, func(arg string) bool {
			return arg == "--config" || strings.HasPrefix(arg, "/etc/jetpull/")
		}))
	}
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func TestKubernetesManifests(t *testing.T) {
	var kinds []string
	decoder := yaml.NewDecoder(strings.NewReader(readDeploy(t, "kubernetes.yaml")))
	for {
		var m struct {
			Kind string
			Spec struct {
				Selector any
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						SecurityContext struct {
							RunAsNonRoot bool `yaml:"runAsNonRoot"`
							RunAsUser    int  `yaml:"runAsUser"`
						} `yaml:"securityContext"`
						Containers []struct {
							Args  []string
							Env   []struct{ Name string }
							Ports []struct {
								Name          string
								ContainerPort int `yaml:"containerPort"`
							}
							StartupProbe, LivenessProbe, ReadinessProbe probe
							VolumeMounts                                []struct{ Name string } `yaml:"volumeMounts"`
						}
					}
				}
				VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
			}
		}
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if kinds = append(kinds, m.Kind); m.Kind != "StatefulSet" {
			continue
		}
		pod := m.Spec.Template.Spec
		require.True(t, pod.SecurityContext.RunAsNonRoot)
		require.Contains(t, readDeploy(t, "Dockerfile"), "USER 65532:65532")
		require.Equal(t, 65532, pod.SecurityContext.RunAsUser)
		c := pod.Containers[0]
		parses(t, c.Args)
		require.Contains(t, c.Args, "0.0.0.0:8080")
		require.Equal(t, 8080, c.Ports[0].ContainerPort)
		require.Equal(t, m.Spec.VolumeClaimTemplates[0].Metadata.Name, c.VolumeMounts[0].Name)
		require.Equal(t, "JETPULL_BROKER_ADMIN_TOKEN", c.Env[0].Name)
	}
	require.Equal(t, []string{"StatefulSet", "Service"}, kinds)
	for _, path := range regexp.MustCompile(`path: (\S+),`).FindAllStringSubmatch(readDeploy(t, "kubernetes.yaml"), -1) {
		require.Contains(t, []string{"/healthz", "/readyz"}, path[1])
	}
	require.Equal(t, 3, strings.Count(readDeploy(t, "kubernetes.yaml"), "Probe:\n"))
}

// The commands of the unit and of the image start, and the image's health check says so.
func TestDeployedCommandRuns(t *testing.T) {
	exec1 := regexp.MustCompile(`(?m)^ExecStart=jetpull (.*)$`).FindStringSubmatch(readDeploy(t, "jetpull-broker.service"))
	require.NotNil(t, exec1)
	unit := strings.Fields(exec1[1])
	parses(t, unit)
	// Without a log file to open again, SIGHUP ends the broker.
	if regexp.MustCompile(`(?m)^ExecReload=.*HUP`).MatchString(readDeploy(t, "jetpull-broker.service")) {
		require.Contains(t, unit, "--log-file")
	}
	file := readDeploy(t, "Dockerfile")
	var start, health []string
	for into, pattern := range map[*[]string]string{&start: `(?m)^CMD (\[.*\])$`, &health: `(?m)CMD (\["/jetpull".*\])$`} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(file)
		require.NotNil(t, found, pattern)
		require.NoError(t, yaml.Unmarshal([]byte(found[1]), into))
	}
	parses(t, start)
	parses(t, health[1:])
	require.Regexp(t, `(?m)^RUN CGO_ENABLED=0 go build .* -o /out/jetpull ./cmd/jetpull &&`, file)
	// COPY . . takes neither programs nor the store of whoever has tried the broker there.
	require.Subset(t, strings.Fields(readDeploy(t, "../.dockerignore")), []string{"bin", broker.DefaultConfig().NATS.StoreDir})
	for _, args := range [][]string{unit, start} {
		store := filepath.Join(t.TempDir(), "store")
		args = slices.Clone(args[1:])
		args[slices.Index(args, "--store-dir")+1] = store
		args[slices.Index(args, "--listen")+1] = "127.0.0.1:0"
		url, stop := listen(t, brokercmd.New(), args...)
		check := slices.Clone(health[2:])
		check[slices.Index(check, "--url")+1] = url
		require.NoError(t, brokerRun(t, check...))
		require.NoError(t, stop())
		require.DirExists(t, store)
	}
}
