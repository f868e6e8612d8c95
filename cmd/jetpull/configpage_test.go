package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/relay"
)

var update = flag.Bool("update", false, "write docs/configuration.md and the tables of docs/metrics.md")

const configurationPage = "../../docs/configuration.md"

// configurationIntro is the text of the page before the tables.
const configurationIntro = "# Configuration\n\n" +
	"This page is for operators of a broker or a relay. It lists the keys of their configuration, with the defaults. `make reference` generates it\n" +
	"from the code.\n\n" +
	"`--config FILE` reads a file in INI format, and `--print-config` prints one with every key. Each key is also a flag, and an environment\n" +
	"variable: `max-retry` under `[broker]` is `--broker-max-retry` and `JETPULL_BROKER_BROKER_MAX_RETRY`. A flag has precedence over the environment, and\n" +
	"both over the file. An unknown section or key is an error.\n"

// configurationTables returns the tables of a system: its sections, and their keys with flag, default and meaning.
func configurationTables(title, sample string, cmd *cobra.Command) string {
	flagOf := func(section, key string) (name string) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "(["+section+"] "+key+", $") {
				name = f.Name
			}
		})
		return name
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n", title)
	section, help := "", ""
	for line := range strings.Lines(sample) {
		line = strings.TrimRight(line, "\n")
		key, value, isKey := strings.Cut(line, " = ")
		switch {
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
			if strings.HasPrefix(section, "initial-") {
				return b.String()
			}
			fmt.Fprintf(&b, "\n### %s of the %s\n\n| key | flag | default | meaning |\n| --- | --- | --- | --- |\n", section, strings.ToLower(title))
		case strings.HasPrefix(line, "# "):
			help = strings.TrimPrefix(line, "# ")
		case isKey:
			if value = strings.TrimSpace(value); value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s |\n", key, flagOf(section, key), value, strings.ReplaceAll(help, "|", "\\|"))
		}
	}
	return b.String()
}

// docs/configuration.md is what the code has.
func TestConfigurationPage(t *testing.T) {
	want := configurationIntro + configurationTables("Broker", broker.SampleConfig(), brokercmd.New()) +
		configurationTables("Relay", relay.SampleConfig(), relaycmd.New())
	if *update {
		require.NoError(t, os.WriteFile(configurationPage, []byte(want), 0o600))
	}
	got, err := os.ReadFile(configurationPage)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run make reference")
}
