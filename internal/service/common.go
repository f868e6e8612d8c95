package service

import (
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// HTTP configures a listener. All systems have these settings.
type HTTP struct {
	Listener     string // the address to listen on; 127.0.0.1:8080 by default
	MaxBodyBytes int    // the maximum size of a request body, in bytes
	// PerAddress is the maximum number of connections from one address. 0 means no limit. The default is 1,024.
	PerAddress int
	// Proxies lists the addresses and networks of reverse proxies. The client of a proxy's request is the last address in X-Forwarded-For that is not
	// a proxy. X-Forwarded-Prefix precedes the paths that the client sees. PerAddress does not limit proxies.
	Proxies []string
	// PublicURL is the URL at which clients reach the listener, such as https://example.com/relay. Empty means the URL that they request, or that a
	// trusted proxy reports.
	PublicURL string
	// Open allows a listener beyond loopback without an admin token.
	Open bool
	// OpenMetrics allows requests for the metrics without the admin token.
	OpenMetrics bool
}

// HTTPSettings returns the settings of an HTTP. The body of what is limited to body bytes by default. The setting cannot exceed most.
func HTTPSettings[C any](system, what, body string, most int, of func(*C) *HTTP) []Setting[C] {
	return []Setting[C]{
		Text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *C) *string { return &of(c).Listener }),
		Number("http", "max-body-bytes", body, 1, most, "maximum bytes of the body of "+what+"; a larger body is rejected with 413",
			func(c *C) *int { return &of(c).MaxBodyBytes }),
		Number("http", "max-connections-per-address", "1024", 0, 1<<20,
			"maximum connections from one address, and at most half of the files that the process may open; all clients behind a proxy share its address "+
				"unless trusted-proxies names it; 0: no limit", func(c *C) *int { return &of(c).PerAddress }),
		List("http", "trusted-proxies", "", "addresses and networks of reverse proxies, such as 10.0.0.0/8, separated by commas; the client of "+
			"their requests is the last other address in X-Forwarded-For, and X-Forwarded-Prefix is in front of the paths that it sees",
			httpserve.CheckProxies, func(c *C) *[]string { return &of(c).Proxies }),
		Text("http", "public-url", "", "URL by which clients reach the listener, such as https://example.com/"+system+"; its path is in front of "+
			"each path in a response; empty: the URL that they use, or that a trusted proxy says", func(c *C) *string { return &of(c).PublicURL }),
		Boolean("http", "open", "false", "allow an address other than loopback without an admin token", func(c *C) *bool { return &of(c).Open }),
		Boolean("http", "open-metrics", "false", "serve /metrics without the admin token", func(c *C) *bool { return &of(c).OpenMetrics }),
	}
}

// Check refuses a listener that other machines can reach without a token, and an invalid public URL. harm says what anybody could then do.
func (h *HTTP) Check(harm, token string) error {
	_, public := httpserve.ParsePublicURL(h.PublicURL)
	loopback, err := Loopback(h.Listener)
	if err == nil && !loopback && token == "" && !h.Open {
		err = fmt.Errorf("[http] listener: %s can be reached from other machines, and anybody could %s: listen on 127.0.0.1, or set an admin token "+
			"(--admin-token, or \"token\" under [admin]); if only trusted clients can reach it, --http-open true (\"open\" under [http]) allows it "+
			"without a token", h.Listener, harm)
	}
	return errors.Join(Named("[http] public-url", public), err)
}

// Log configures the log.
type Log struct {
	Filename string // the file to log to; empty means standard error
	Level    string // debug, info (the default), warn, error or, for the broker, fatal
}

// LogSettings returns the settings of a Log with these levels.
func LogSettings[C any](levels []string, of func(*C) *Log) []Setting[C] {
	return []Setting[C]{
		Text("log", "filename", "", "file to log to, reopened on SIGHUP; empty: standard error", func(c *C) *string { return &of(c).Filename }),
		Choice("log", "log-level", "info", levels, "lowest level that is logged", func(c *C) *string { return &of(c).Level }),
	}
}

// Admin configures the administration of a system.
type Admin struct {
	// Token is the admin token. Empty means that requests need none; see HTTP.Open.
	Token string
	// MaxFailed is the maximum number of requests with a wrong admin token from one address in a minute. Beyond it, until the minute is over, the
	// answer to a wrong token waits for a second. 0 means no limit. The default is 60.
	MaxFailed int
}

// AdminSettings returns the settings of an Admin. token is the description of the token.
func AdminSettings[C any](token string, of func(*C) *Admin) []Setting[C] {
	return []Setting[C]{
		Text("admin", "token", "", token, func(c *C) *string { return &of(c).Token }),
		Number("admin", "max-failed-logins-per-minute", "60", 0, 1<<20,
			"maximum requests with a wrong admin token from one address in a minute; beyond it, the response to a wrong token is delayed by a second until "+
				"the minute is over; a valid token is never rejected; 0: no limit", func(c *C) *int { return &of(c).MaxFailed }),
	}
}

// NATS configures the NATS server of a system.
type NATS struct {
	// URL is the URL of an existing server, or several, separated by commas. Empty means a server in this process.
	URL      string
	Creds    string // the file with the credentials for an existing server; empty means none
	StoreDir string // the folder of the embedded server
	Name     string // the first part of the names of streams and subjects; the system's name by default
	Replicas int    // the number of copies of each stream, 1 (the default) to 5
	// Sync is when the embedded server syncs to disk. With always (the default) or each, it syncs before it answers: several writes together, or each
	// write alone. Otherwise Sync is an interval such as 2m. A crash of the machine then loses the writes since the last sync.
	Sync string
}

// NATSSettings returns the settings of a NATS.
func NATSSettings[C any](system string, of func(*C) *NATS) []Setting[C] {
	return []Setting[C]{
		Text("nats", "url", "", "URL of an existing NATS server, or several separated by commas; empty: run one in this process",
			func(c *C) *string { return &of(c).URL }),
		Text("nats", "creds", "", "file with the credentials for that server", func(c *C) *string { return &of(c).Creds }),
		Text("nats", "store-dir", system+"-data", "folder of the embedded server's store", func(c *C) *string { return &of(c).StoreDir }),
		Text("nats", "name", system, "first part of the names of streams and subjects", func(c *C) *string { return &of(c).Name }),
		Number("nats", "replicas", "1", 1, 5, "replicas of each stream, 1 to 5; the embedded server supports 1",
			func(c *C) *int { return &of(c).Replicas }),
		Text("nats", "sync", "always", "when the embedded server syncs to disk: always (before the response, several writes at a time), each "+
			"(before the response, one write at a time), or an interval such as 10s; with an interval, a crash of the machine loses the writes since the "+
			"last sync", func(c *C) *string { return &of(c).Sync }),
	}
}

// Named returns err with the name of its setting. It returns nil if err is nil.
func Named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
