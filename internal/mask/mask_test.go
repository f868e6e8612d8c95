package mask

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestURL(t *testing.T) {
	for raw, want := range map[string]string{
		"":                               "",
		"http://127.0.0.1:9090/hook":     "http://127.0.0.1:9090/hook",
		"http://u:p@h/a/b?token=Q#f":     "http://…@h/a/b?…",
		"http://h/a#token":               "http://h/a#…",
		"HTTPS://h":                      "HTTPS://h",
		"http://[::1]:8080/":             "http://[::1]:8080/",
		"http://h:x/p":                   "http://…",
		"http://h/p?mail=a@b.example":    "http://…",
		"http://h/key=value":             "http://h…",
		"http://h/p;v=1":                 "http://h/p;…",
		"http://h/\x1b[2J":               "http://h…",
		"http://bücher.example/p":        "http://bücher.example/…",
		"http://ｈooks.slack.com/x":       "http://ｈooks.slack.com/…",
		"/services/T0/B0/x":              "…",
		"hooks.slack.com/services/T0/B0": "hooks.slack.com/…",
		"nats://u:p@…:x":                 "nats://…@…",
		"nats://token@h:4222":            "nats://…@h:4222",
		"nats://a:b@h:1, tls://t@i":      "nats://…@h:1,tls://…@i",
		"nats://h:1,i:2":                 "nats://h:1,i:2",
		"nats://a:p,w@h":                 "nats://…@h",
		"nats://a:p@ss@h":                "nats://…@h",
		"nats://a:12/34@h":               "nats://…",
		"nats://a:12?34@h":               "nats://…",
		"a:b@h:1":                        "…@h:1",
		"localhost:4222":                 "localhost:4222",
		"sqlite:/var/lib/my feed.db":     "sqlite:/var/lib/my feed.db",
		"sqlite:feed.db?_key=k":          "sqlite:feed.db?…",
		"sqlite:///feed.db":              "sqlite:///feed.db",
		"sqlite::memory:":                "sqlite::memory:",
		"postgres://u:p@h,i:5433/db?a=b": "postgres://…@h,i:5433/db?…",
		"postgres:host=h password=p":     "…",
		"sqlserver://u:p@h?password=x":   "sqlserver://…@h?…",
		"sqlserver://h;password=x":       "sqlserver://h;…",

		"https://hooks.slack.com/services/T0/B0/x":      "https://hooks.slack.com/…",
		"https://HOOKS.SLACK.COM.:443/services/T0/B0/x": "https://HOOKS.SLACK.COM.:443/…",
		"https://discord.com/api/webhooks/1/x?wait=1":   "https://discord.com/…?…",
		"https://ptb.discordapp.com/api/webhooks/1/x":   "https://ptb.discordapp.com/…",
		"https://acme.webhook.office.com/webhookb2/x":   "https://acme.webhook.office.com/…",
		"https://api.telegram.org/bot1:x/sendMessage":   "https://api.telegram.org/…",
		"https://hooks.zapier.com/hooks/catch/1/x":      "https://hooks.zapier.com/…",
		"https://notslack.com/a":                        "https://notslack.com/a",
		"https://api.telegram.org/":                     "https://api.telegram.org/",
	} {
		require.Equal(t, want, URL(raw), raw)
	}
}

func TestError(t *testing.T) {
	require.NoError(t, Error(nil, "nats://u:p@h"))
	plain := errors.New("no server answers")
	require.Same(t, plain, Error(plain, "nats://u:secret@h"))

	bad := "nats://u:x/secret@h"
	_, err := url.Parse(bad) //nolint:staticcheck // it is no URL on purpose
	shown := Error(fmt.Errorf("connect: %w", err), "")
	require.EqualError(t, shown, `parse "nats://…": `+errNotURL.Error())
	require.EqualError(t, Error(plain, bad), `"nats://…": `+errNotURL.Error(), "it may have parts of what nobody can find in it")
	require.ErrorIs(t, Error(plain, bad), plain)

	dial := errors.New("connection refused")
	err = Error(&url.Error{Op: "Get", URL: "http://u:p@h/a?token=Q", Err: dial}, "")
	require.EqualError(t, err, `Get "http://…@h/a?…": connection refused`)
	require.ErrorIs(t, err, dial)

	for raw, text := range map[string]string{
		"postgres://u:sec%20ret@h/db":                "login with sec ret or sec%20ret or sec+ret",
		"postgres://u:p@h/db?sslpassword=sec&sslm=v": "sslpassword sec",
		"postgres:host=h password='sec ret' port=1":  "the password is sec ret",
		"sqlserver://h;pwd=secret":                   "pwd secret",
		"u:secret@h":                                 "user u with secret",
		"postgres://u:pw@secret@h/db":                "lookup secret@h: no such host",
		"nats://secret@h":                            "token secret",
	} {
		require.NotContains(t, Error(errors.New(text), raw).Error(), "sec", raw)
	}
}

// Whatever a password is and is surrounded by, it is shown neither as part of an address nor of an error about it.
func FuzzURL(f *testing.F) {
	f.Add("nats://u:", "pass", "@…:x")
	f.Add("http://u:", "pa/ss", "@h/?token=Q")
	f.Add("http://h/p?token=", "p@ss", "")
	f.Add("", "us:pass", "@h:4222")
	f.Add("nats://a,nats://u:", "12,34", "@h,i")
	f.Add("postgres://u:", "p?ss", "@h:1,i:2/db?password=x")
	f.Add("sqlserver://h;password=", "pass", ";user=u")
	f.Add("https://hooks.slack.com/services/", "T0/B0/x", "")
	f.Add("http://u:", "%zzpass", "@\x00h\n")
	f.Add("sqlite:f.db?_key=", "pass", "")
	f.Fuzz(func(t *testing.T, before, password, after string) {
		at := strings.HasPrefix(after, "@")
		secret := at || strings.HasSuffix(before, "=") && strings.ContainsAny(before, "?;") || strings.HasSuffix(before,
			"https://hooks.slack.com/services/")
		if !secret || len(password) < 4 || strings.Contains(before+after, password) || strings.Contains(errNotURL.Error()+`: connect: parse "://…@`,
			password) {
			return
		}
		raw := before + password + after
		if shown := URL(raw); strings.Contains(shown, password) {
			t.Errorf("%q is shown as %q", raw, shown)
		}
		if _, err := url.Parse(raw); err != nil {
			if shown := Error(fmt.Errorf("connect: %w", err), raw).Error(); strings.Contains(shown, password) {
				t.Errorf("the error of %q is shown as %q", raw, shown)
			}
		}
	})
}
