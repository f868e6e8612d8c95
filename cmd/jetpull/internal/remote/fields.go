package remote

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Fields are the flags of a command that sets fields of an object.
type Fields struct {
	*pflag.FlagSet
	Name func(flag string) (field string)

	file string
}

// Register adds the flags to a command, and --file for what other users of the machine must not see.
func (f *Fields) Register(cmd *cobra.Command) {
	cmd.Flags().AddFlagSet(f.FlagSet)
	cmd.Flags().StringVar(&f.file, "file", "", "`FILE` with the configuration as JSON; - for standard input")
	cli.NotEmpty(cmd.Flags(), "file", "a file, or - for standard input")
}

// Given returns the fields that the file and the flags have. The flags go first.
func (f *Fields) Given(cmd *cobra.Command) (fields map[string]any, err error) {
	fields = map[string]any{}
	if f.file != "" {
		if fields, err = readObject(cmd, f.file); err != nil {
			return nil, err
		}
	}
	f.VisitAll(func(flag *pflag.Flag) {
		field, text := f.Name(flag.Name), flag.Value.String()
		list, isList := flag.Value.(pflag.SliceValue)
		switch {
		case !flag.Changed:
		case isList:
			fields[field] = list.GetSlice()
		case flag.Value.Type() == "string":
			fields[field] = text
		case json.Valid([]byte(text)): // numbers and booleans are written as JSON writes them
			fields[field] = json.RawMessage(text)
		default:
			err = cli.Usage(fmt.Errorf("--%s %s is no number", flag.Name, text))
		}
	})
	return fields, err
}

func readObject(cmd *cobra.Command, file string) (fields map[string]any, err error) {
	data, err := ReadFile(cmd, file)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is not a JSON object: %w", file, err))
	}
	if fields == nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is null and not a JSON object: write the fields of its configuration, or {}", file))
	}
	return fields, nil
}
