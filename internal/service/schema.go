package service

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/ini.v1"
)

// Schema contains the keys of the configuration C of a system.
type Schema[C any] struct {
	prefix   string // of environment variables
	settings []Setting[C]
}

// shortFlags maps keys to flags that are not called --section-key in any system.
var shortFlags = map[string]string{
	"nats-url": "nats", "nats-creds": "creds", "nats-store-dir": "store-dir", "nats-sync": "sync", "nats-replicas": "replicas",
	"http-listener": "listen", "log-log-level": "log-level", "log-filename": "log-file",
}

// NewSchema returns the schema of a system. settings are in the order of the sample file. short maps keys to flags that are not called --section-key,
// in addition to those that all systems have.
func NewSchema[C any](system string, short map[string]string, settings ...Setting[C]) *Schema[C] {
	s := &Schema[C]{prefix: "JETPULL_" + strings.ToUpper(system) + "_", settings: settings}
	for i := range settings {
		one := &settings[i]
		one.flag = one.Section + "-" + one.Key
		one.env = s.prefix + strings.ToUpper(strings.ReplaceAll(one.Section+"_"+one.Key, "-", "_"))
		for _, names := range []map[string]string{shortFlags, short} {
			if name, ok := names[one.flag]; ok {
				one.flag = name
				break
			}
		}
	}
	return s
}

// Clamp reduces values above their limits to the limits, and calls warn for each. Without it, they are errors.
func (s *Schema[C]) Clamp(warn func(c *C, warning string)) *Schema[C] {
	for i := range s.settings {
		s.settings[i].warn = warn
	}
	return s
}

// Settings returns every key, in the order of the sample file.
func (s *Schema[C]) Settings() []Setting[C] { return slices.Clone(s.settings) }

// New returns a configuration in which every key has its default.
func (s *Schema[C]) New() *C {
	c := new(C)
	for _, one := range s.settings {
		if one.Ignored {
			continue
		}
		if err := one.Apply(c, one.Default); err != nil {
			// A test applies every default, so this cannot happen.
			panic(err)
		}
	}
	return c
}

// Sources are the sources of a configuration. Later sources override earlier ones: the file, then the environment, then the flags.
type Sources struct {
	// File is the path of an INI file, or empty.
	File string
	// Env looks up an environment variable, as os.LookupEnv does.
	Env func(name string) (string, bool)
	// Flags maps the names of the given flags to their values.
	Flags map[string]string
}

// Load applies sources to a configuration that has its defaults. readINI parses the file. The error names every key that is unknown or has an invalid
// value.
func (s *Schema[C]) Load(c *C, from Sources, readINI func(data []byte) error) error {
	var errs []error
	if from.File != "" {
		data, err := os.ReadFile(from.File)
		if err != nil {
			return fmt.Errorf("read the configuration: %w", err)
		}
		errs = append(errs, Named(from.File, readINI(data)))
	}
	for _, one := range s.settings {
		if from.Env != nil {
			if value, ok := from.Env(one.Env()); ok {
				errs = append(errs, Named("environment variable "+one.Env(), one.Apply(c, value)))
			}
		}
		if value, ok := from.Flags[one.Flag()]; ok {
			errs = append(errs, Named("flag --"+one.Flag(), one.Apply(c, value)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.Flags)) {
		if !slices.ContainsFunc(s.settings, func(one Setting[C]) bool { return one.Flag() == name }) {
			errs = append(errs, fmt.Errorf("flag --%s: no such flag; Settings has all of them", name))
		}
	}
	return errors.Join(errs...)
}

// ParseINI parses an INI file. It refuses text that is not UTF-8, which could not be shown or stored unchanged.
func ParseINI(data []byte) (*ini.File, error) {
	number := 0
	for line := range bytes.Lines(data) {
		if number++; !utf8.Valid(line) {
			return nil, fmt.Errorf("line %d is not UTF-8: save the file in UTF-8", number)
		}
	}
	file, err := ini.LoadSources(ini.LoadOptions{}, data)
	if err != nil {
		return nil, fmt.Errorf("not an INI file: %w", err)
	}
	return file, nil
}

// Has reports whether the schema has a section.
func (s *Schema[C]) Has(section string) bool {
	return slices.ContainsFunc(s.settings, func(one Setting[C]) bool { return one.Section == section })
}

// Read applies an INI file. It calls other for the sections that the schema does not have. The error names every unknown section and key, and every
// invalid value.
func (s *Schema[C]) Read(c *C, file *ini.File, other func(*ini.Section) error) error {
	var errs []error
	for _, section := range file.Sections() {
		switch {
		case s.Has(section.Name()):
			errs = append(errs, s.readSection(c, section))
		case section.Name() != ini.DefaultSection || len(section.Keys()) > 0: // every file has the default section
			errs = append(errs, other(section))
		}
	}
	return errors.Join(errs...)
}

// UnknownSection returns the error for an unknown section.
func UnknownSection(section *ini.Section) error {
	return fmt.Errorf("[%s]: no such section", section.Name())
}

func (s *Schema[C]) readSection(c *C, section *ini.Section) error {
	var errs []error
	for _, key := range section.Keys() {
		i := slices.IndexFunc(s.settings, func(one Setting[C]) bool { return one.Section == section.Name() && one.Key == key.Name() })
		if i < 0 {
			errs = append(errs, fmt.Errorf("[%s] %s: no such key", section.Name(), key.Name()))
			continue
		}
		errs = append(errs, s.settings[i].Apply(c, key.String()))
	}
	return errors.Join(errs...)
}

// Sample returns a configuration file that sets every key to its default.
func (s *Schema[C]) Sample(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s. Every key is a flag, which --help names,\n# and an environment variable, %sSECTION_KEY.\n", title, s.prefix)
	section := ""
	for _, one := range s.settings {
		if one.Ignored {
			continue
		}
		if one.Section != section {
			section = one.Section
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "# %s\n%s = %s\n", one.Help, one.Key, one.Default)
	}
	return b.String()
}

// Stray warns of environment variables that have the system's prefix but name no setting. It skips those of clients. They are not errors, unlike
// unknown keys of the file, because Kubernetes sets variables for every service, and a service may be called jetpull-broker.
func (s *Schema[C]) Stray(environ []string, clients ...string) (warnings []string) {
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		known := slices.Contains(clients, name) || slices.ContainsFunc(s.settings, func(one Setting[C]) bool { return one.Env() == name })
		if strings.HasPrefix(name, s.prefix) && !known {
			warnings = append(warnings, "environment variable "+name+" is not known and has no effect")
		}
	}
	return warnings
}
