package httpserve

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckBrowser(t *testing.T) {
	type header = map[string]string
	for name, tt := range map[string]struct {
		header        header
		change, reads bool
	}{
		"no browser":                  {header{}, true, true},
		"another site":                {header{"Origin": "http://other.example"}, false, true},
		"another site, that it names": {header{"Sec-Fetch-Site": "cross-site", "Origin": "http://other.example"}, false, true},
		"a file":                      {header{"Origin": "null"}, false, true},
		"another port": {
			header{"Sec-Fetch-Site": "same-site", "Host": "localhost:8080", "Origin": "http://localhost:3000"},
			false,
			true,
		},
		"its own": {
			header{"Sec-Fetch-Site": "same-origin", "Host": "localhost:8080", "Origin": "http://localhost:8080"},
			true,
			true,
		},
		"typed in":                        {header{"Sec-Fetch-Site": "none"}, true, true},
		"a name that leads here":          {header{"Host": "other.example:8080", "Origin": "http://other.example:8080"}, false, false},
		"such a name, without Origin":     {header{"Host": "other.example:8080"}, false, false},
		"an address that leads here":      {header{"Host": "10.1.2.3"}, false, false},
		"localhost":                       {header{"Host": "LocalHost"}, true, true},
		"below localhost":                 {header{"Host": "broker.localhost:80"}, true, true},
		"localhost in IPv6":               {header{"Host": "[::1]:8080"}, true, true},
		"localhost in IPv6, without port": {header{"Host": "[::1]"}, true, true},
		"another loopback address":        {header{"Host": "127.1.2.3"}, true, true},
		"a reverse proxy":                 {header{"Host": "127.0.0.1:8080", "X-Forwarded-For": "10.1.2.3"}, true, true},
		"a reverse proxy with a name":     {header{"Host": "broker.example", "X-Forwarded-For": "10.1.2.3"}, false, false},
	} {
		for method, allowed := range map[string]bool{"POST": tt.change, "GET": tt.reads} {
			r := httptest.NewRequest(method, "/", nil)
			r.Host = "127.0.0.1:8080"
			for key, value := range tt.header {
				if key == "Host" {
					r.Host = value
				} else {
					r.Header.Set(key, value)
				}
			}
			err := checkBrowser(r, true)
			require.Equal(t, allowed, err == nil, "%s, %s: %v", method, name, err)
			if r.Host == "broker.example" {
				require.ErrorContains(t, err, `"broker.example"`)
				require.NoError(t, checkBrowser(r, false), "beyond loopback a server has the names that it is given")
			}
		}
	}
}
