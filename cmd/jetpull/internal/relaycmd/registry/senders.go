package registry

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
)

// sender is what the relay shows of a sender.
type sender struct {
	Name             string   `json:"name"`
	CallbackEndpoint string   `json:"callback_endpoint"`
	Secrets          int      `json:"secret_count"`
	Sources          []string `json:"sources"`
}

// NewSenders is jetpull relay senders.
func NewSenders(r *remote.Server) *cobra.Command {
	fields := pflag.NewFlagSet("", pflag.ContinueOnError)
	fields.String("callback-endpoint", "none", "`URL` that gets the results of messages, or none")
	fields.StringArray("sources", nil, "`PREFIX` of the sender's sources, once for each; an empty one is all")
	return kind[sender]{
		relay: r, names: "senders",
		show: "Show a sender",
		rm:   "Remove a sender; no callback to it is made any more",
		put: &cobra.Command{
			Use:   "put NAME",
			Short: "Configure a sender, a new one or one that there is",
			Long: `Configure a sender. The token of a new one, and secrets, come by --file, since other
users of the machine can see a command line. Those that are there stay, unless the
file has others. Without a callback endpoint the sender gets no callbacks.`,
			Example: `  jetpull relay senders put shop --file shop.json --sources shop/ --callback-endpoint http://127.0.0.1:9091/done
  echo '{"token": "'"$TOKEN"'"}' | jetpull relay senders put shop --file - --sources shop/`,
		},
		fields: fields,
		header: []string{"name", "callback endpoint", "sources", ">secrets"},
		row: func(s *sender) []string {
			return []string{s.Name, s.endpoint(), s.sources(), strconv.Itoa(s.Secrets)}
		},
		text: func(s *sender) string {
			return remote.Table([]string{s.Name, ""}, [][]string{
				{"callback endpoint", s.endpoint()}, {"sources", s.sources()}, {"secrets", strconv.Itoa(s.Secrets)},
			})
		},
	}.command()
}

func (s *sender) endpoint() string { return cmp.Or(s.CallbackEndpoint, "none") }

// sources are the prefixes, quoted, since one can be empty or have spaces.
func (s *sender) sources() string {
	var quoted []string
	for _, prefix := range s.Sources {
		quoted = append(quoted, strconv.Quote(prefix))
	}
	return strings.Join(quoted, ", ")
}
