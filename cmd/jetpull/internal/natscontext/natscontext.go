// Package natscontext reads the contexts of the nats command.
//
// Package natscontext of jsm.go reads the same files, but it imports jsm.go with an expression language and all schemas, which adds 2.2 MB
// to the command. Package natscontext of orbit.go ignores user_jwt and user_seed.
package natscontext

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Context is a context of the nats command: the settings of a connection, stored as JSON. [Load] returns an error for unsupported settings of
// a connection, so that none is ignored.
type Context struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	UserJWT     string `json:"user_jwt"`
	UserSeed    string `json:"user_seed"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	TLSFirst    bool   `json:"tls_first"`
	InboxPrefix string `json:"inbox_prefix"`
	Domain      string `json:"jetstream_domain"`
	APIPrefix   string `json:"jetstream_api_prefix"`

	NSC              string `json:"nsc"`
	SOCKSProxy       string `json:"socks_proxy"`
	WindowsCertStore string `json:"windows_cert_store"`

	Path string `json:"-"` // the path of its file
}

// Load reads a context by its name or by the path of its file.
func Load(ctx context.Context, name string) (*Context, error) {
	path := name
	if !filepath.IsAbs(name) {
		if name == "" || name != filepath.Base(name) || strings.Contains(name, "..") {
			return nil, cli.Usage(fmt.Errorf("%q is not the name of a context, nor an absolute path of its file", name))
		}
		path = filepath.Join(dir(), "context", name+".json")
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Usage(fmt.Errorf("there is no context %q: %s does not exist; make one with: nats context add", name, path))
	}
	if err != nil {
		return nil, fmt.Errorf("read context %q: %w", name, err)
	}
	c := &Context{Path: path}
	if err := json.Unmarshal(content, c); err != nil {
		return nil, fmt.Errorf("context %s is not as the nats command writes it: %w", path, err)
	}
	c.Creds = os.ExpandEnv(c.Creds)
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, c.askNSC(ctx)
}

// askNSC gets the credentials from the nsc command, and also the servers if the context has none.
func (c *Context) askNSC(ctx context.Context) error {
	if c.NSC == "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "nsc", "generate", "profile", c.NSC).Output()
	if err != nil {
		return fmt.Errorf("context %s has \"nsc\": %q, and nsc generate profile failed: %w", c.Path, c.NSC, err)
	}
	var profile struct {
		Creds    string `json:"user_creds"`
		Operator struct {
			Service []string `json:"service"`
		} `json:"operator"`
	}
	if err := json.Unmarshal(out, &profile); err != nil || profile.Creds == "" {
		return fmt.Errorf("context %s: nsc generate profile %s printed no credentials", c.Path, c.NSC)
	}
	c.Creds, c.URL = profile.Creds, cmp.Or(c.URL, strings.Join(profile.Operator.Service, ","))
	return nil
}

// Selected returns the name of the context that is selected in the nats command, or "".
func Selected() (string, error) {
	name, err := os.ReadFile(filepath.Join(dir(), "context.txt"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read which context is selected: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}

// Names returns the names of all contexts.
func Names() (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir(), "context", "*.json")) // the pattern is valid
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return names
}

// dir returns the folder of the nats command's contexts.
func dir() string {
	return filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home(), ".config")), "nats")
}

// home returns the user's home folder, or else the root of the file system. A relative path would find contexts in the current folder.
func home() string {
	dir, err := os.UserHomeDir()
	if err != nil {
		return string(filepath.Separator)
	}
	return dir
}

func (c *Context) check() error {
	const unsupported = "context %s has %q: %q, which is not supported; %s"
	switch {
	case c.SOCKSProxy != "":
		return cli.Usage(fmt.Errorf(unsupported, c.Path, "socks_proxy", c.SOCKSProxy, "use --nats with an address that can be reached directly"))
	case c.WindowsCertStore != "":
		return cli.Usage(fmt.Errorf(unsupported, c.Path, "windows_cert_store", c.WindowsCertStore, `name certificate files under "cert" and "key"`))
	case (c.Cert == "") != (c.Key == ""):
		return cli.Usage(fmt.Errorf("context %s has one of \"cert\" and \"key\" and needs both", c.Path))
	case c.UserJWT == "" && c.UserSeed != "":
		return cli.Usage(fmt.Errorf("context %s has \"user_seed\" and needs \"user_jwt\" with it", c.Path))
	}
	return nil
}

// Options returns the context as options of a connection.
func (c *Context) Options() ([]nats.Option, error) {
	var opts []nats.Option
	switch {
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Creds != "":
		path := ExpandHome(c.Creds)
		// Check that the file can be read. The connection's error would not name the setting.
		if _, err := os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.called("creds"), c.Creds, err)
		}
		opts = append(opts, nats.UserCredentials(path))
	case c.NKey != "":
		nkey, err := nats.NkeyOptionFromSeed(ExpandHome(c.NKey))
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.called("nkey"), c.NKey, err)
		}
		opts = append(opts, nkey)
	case c.UserJWT != "" && c.UserSeed != "":
		opts = append(opts, nats.UserJWTAndSeed(c.UserJWT, c.UserSeed))
	case c.UserJWT != "":
		// This is a bearer token, for which the server requires no signature.
		opts = append(opts, nats.UserJWT(
			func() (string, error) { return c.UserJWT, nil },
			func([]byte) ([]byte, error) { return nil, nil }))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token))
	}
	if c.Cert != "" {
		opts = append(opts, nats.ClientCert(ExpandHome(c.Cert), ExpandHome(c.Key)))
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(ExpandHome(c.CA)))
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	return opts, nil
}

// called returns how the user sets a field: by its key in the context's file, or by a flag or variable if there is no file.
func (c *Context) called(key string) string {
	if c.Path == "" {
		return "--" + key + " (NATS_" + strings.ToUpper(key) + ")"
	}
	return "context " + c.Path + ": " + key
}

// ExpandHome replaces a leading "~/" by the user's home folder.
func ExpandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(home(), rest)
	}
	return path
}
