// Package mask hides the secrets of addresses. Logs, errors and responses must use it to show an address.
package mask

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// hidden replaces hidden text.
const hidden = "…"

var (
	scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	// listed matches the start of a further address in a list of NATS servers.
	listed = regexp.MustCompile(`,\s*(?:nats|tls|wss?)://`)
	// hosts matches the hosts of an authority, with their ports. The DSN of a PostgreSQL cluster has several.
	hosts = regexp.MustCompile(`^` + host + `(?:,` + host + `)*$`)
	// secretKey matches the name of a parameter whose value is a secret.
	secretKey = regexp.MustCompile(`(?i)pass|pwd|secret|token|key|sig|auth|cred`)
)

const host = `(?:[\pL\pN._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?`

// sqliteFile is the prefix of a DSN that names a file instead of a host.
const sqliteFile = "sqlite:"

// URL returns an address, or the DSN of a database, in a form that anybody may see: scheme, hosts, ports and path. It hides user, password, query and
// fragment, and also the path if the host is known for secrets in its paths. If an address cannot be divided into these parts with certainty, because
// it is malformed or its password contains a slash, URL hides everything after the scheme. It masks the addresses in a list of NATS servers one by
// one.
func URL(raw string) string {
	var shown []string
	for _, one := range split(raw) {
		shown = append(shown, single(one))
	}
	return strings.Join(shown, ",")
}

// split splits a list of NATS servers. A comma alone may be part of a password.
func split(raw string) (list []string) {
	for {
		at := listed.FindStringIndex(raw)
		if at == nil {
			return append(list, strings.TrimSpace(raw))
		}
		list = append(list, strings.TrimSpace(raw[:at[0]]))
		raw = raw[at[0]+1:]
	}
}

func single(raw string) string {
	front := scheme.FindString(raw)
	file := strings.HasPrefix(raw, sqliteFile) && !strings.Contains(raw, "://")
	if file {
		front = sqliteFile
	}
	rest := raw[len(front):]
	end := len(rest)
	if file {
		end = 0
	} else if i := strings.IndexAny(rest, `/\?#;&`); i >= 0 {
		end = i
	}
	authority, tail := rest[:end], rest[end:]
	if strings.Contains(tail, "@") {
		return front + hidden // these characters may belong to the password
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
		front += hidden + "@"
	}
	path, query := tail, ""
	if i := strings.IndexAny(tail, "?#;&"); i >= 0 {
		path, query = tail[:i], tail[i:i+1]+hidden
	}
	switch {
	case raw == "": // an empty address has nothing to hide
		return ""
	case file || strings.HasPrefix(front, "sqlite://") && authority == "":
	case !hosts.MatchString(authority):
		return front + hidden
	case len(path) > 1 && secretPath(authority):
		path = "/" + hidden
	}
	if strings.ContainsFunc(path, func(r rune) bool { return r == '=' || !unicode.IsPrint(r) }) {
		path = hidden
	}
	return front + authority + path + query
}

// secretPaths lists services whose addresses are secrets. Their subdomains count too.
var secretPaths = []string{
	"slack.com", "slack-gov.com", "discord.com", "discordapp.com", "api.telegram.org",
	"office.com", "office365.com", "logic.azure.com", "powerplatform.com", "powerautomate.com", // Microsoft Teams
	"chat.googleapis.com", "webexapis.com", "api.flock.com", "hooks.zoom.us", "integrations.zoom.us", "feishu.cn", "larksuite.com",
	"hooks.mattermost.com", "rocket.chat",
	"hooks.zapier.com", "make.com", "integromat.com", "maker.ifttt.com", "n8n.cloud", "pipedream.net", "webhook.site", "workers.tines.com",
	"tines.com", "automation.atlassian.com",
	"pagerduty.com", "victorops.com", "opsgenie.com", "incident.io", "sentry.io", "datadoghq.com", "grafana.net",
	"hc-ping.com", "healthchecks.io", "betterstack.com", "betteruptime.com", "ntfy.sh", "pushcut.io", "api.day.app",
	"api.netlify.com", "api.vercel.com", "api.render.com", "hub.docker.com", "api.cloudflare.com",
}

// secretPath reports whether a path of these hosts may be a secret. A name that is not ASCII may stand for any of the services.
func secretPath(authority string) bool {
	for one := range strings.SplitSeq(strings.ToLower(authority), ",") {
		if !strings.HasPrefix(one, "[") {
			one, _, _ = strings.Cut(one, ":")
		}
		one = strings.TrimRight(one, ".")
		if strings.ContainsFunc(one, func(r rune) bool { return r > unicode.MaxASCII }) {
			return true
		}
		if slices.ContainsFunc(secretPaths, func(domain string) bool { return one == domain || strings.HasSuffix(one, "."+domain) }) {
			return true
		}
	}
	return false
}

// errNotURL replaces the error of package url, which quotes parts of the address.
var errNotURL = errors.New("not a valid URL or DSN, or one whose user or password has special characters that are not percent-encoded")

// Error returns err, an error about the address raw, in a form that anybody may see. It wraps err.
func Error(err error, raw string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if e, ok := errors.AsType[*url.Error](err); ok {
		shown := *e
		shown.URL = URL(e.URL)
		if e.Op == "parse" {
			shown.Err = errNotURL
		}
		err, text = &shown, shown.Error()
	}
	for _, one := range split(raw) {
		u, parseErr := url.Parse(one)
		if shown := single(one); scheme.MatchString(one) && (parseErr != nil || strings.HasSuffix(shown, "://"+hidden)) {
			return &maskedError{fmt.Sprintf("%q: %v", shown, errNotURL), err}
		}
		for _, secret := range secrets(one, u) {
			text = strings.ReplaceAll(text, secret, hidden)
		}
	}
	if text == err.Error() {
		return err
	}
	return &maskedError{text, err}
}

// parameter matches a parameter of a DSN in key=value form, such as password=x.
var parameter = regexp.MustCompile(`([\w-]+)\s*=\s*('[^']*'|[^&;\s]+)`)

// secrets returns the parts of an address that errors must not show, in each form in which an error might. u is nil if raw is not a URL.
func secrets(raw string, u *url.URL) []string {
	var list []string
	add := func(secret string) {
		if secret = strings.Trim(secret, "'"); secret != "" {
			list = append(list, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}
	if u != nil && u.User != nil {
		password, ok := u.User.Password()
		if !ok {
			password = u.User.Username() // a NATS token
		}
		add(password)
		_, rest, _ := strings.Cut(password, "@") // which pgx takes for a part of the host
		add(rest)
	}
	if u != nil {
		for key, values := range u.Query() {
			for _, value := range values {
				if secretKey.MatchString(key) {
					add(value)
				}
			}
		}
	}
	for _, m := range parameter.FindAllStringSubmatch(raw, -1) {
		if secretKey.MatchString(m[1]) {
			add(m[2])
		}
	}
	// Without a scheme, it is not a URL, but NATS accepts it as one.
	if at := strings.LastIndexByte(raw, '@'); at >= 0 && !strings.Contains(raw, "://") {
		_, password, ok := strings.Cut(raw[:at], ":")
		if !ok {
			password = raw[:at]
		}
		add(password)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) }) // one secret may be part of another
	return list
}

type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

// addressLike matches text that may be an IP address, with or without a port.
var addressLike = regexp.MustCompile(`[0-9A-Fa-f:.\[]*[:.][0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?(?:\](?::[0-9]+)?)?:?`)

// Addresses hides the IP addresses in text, such as the text of a network error. Only the operator may know the address of a name, and which DNS
// server reported it.
func Addresses(text string) string {
	return addressLike.ReplaceAllStringFunc(text, func(found string) string {
		for _, end := range []string{"", ":", "."} {
			address, ok := strings.CutSuffix(found, end)
			if ok && isAddress(address) {
				return hidden + end
			}
		}
		return found
	})
}

func isAddress(text string) bool {
	if _, err := netip.ParseAddrPort(text); err == nil {
		return true
	}
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inside, "]"); !ok {
			return false
		}
	}
	_, err := netip.ParseAddr(text)
	return err == nil
}
