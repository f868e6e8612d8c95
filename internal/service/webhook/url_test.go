package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckTemplate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ raw, wrong string }{
		{"http://x/", ""},
		{"https://x:65535/a?b=c", ""},
		{"http://[::1]:80/", ""},
		{"http://x/{source_id}?m={message_id}", ""},
		{"http://x/%7Bmessageid%7D", ""},
		{"x", "not absolute"},
		{"http:///x", "not absolute"},
		{"http://:8080/x", "not absolute"},
		{"http://user:pass@/x", "not absolute"},
		{"http://user:pass@:80/x", "not absolute"},
		{"http://[]:80/x", "cannot be parsed"},
		{"http://x\\@y/", "cannot be parsed"},
		{"ftp://x/", "scheme ftp"},
		{"http://x:0/", "no port"},
		{"http://x:00/", "no port"},
		{"http://x:65536/", "no port"},
		{"http://x:99999/", "no port"},
		{"http://x:80:80/", "cannot be parsed"},
		{"http://{source_id}/", "cannot be parsed"},
		{"http://x/{messageid}", `"{messageid}"`},
		{"http://x/{message_id", `"{message_id"`},
		{"http://x/message_id}", `"}"`},
		{"http://x/{{message_id}}", `"{"`},
		{"http://x/?m={}", `"{}"`},
	} {
		err := CheckTemplate(tt.raw, "{source_id}", "{message_id}")
		if tt.wrong == "" {
			require.NoError(t, err, tt.raw)
		} else {
			require.ErrorContains(t, err, tt.wrong, tt.raw)
		}
	}
	require.ErrorContains(t, CheckTemplate("http://x/{message_id}"), "%7B")
}
