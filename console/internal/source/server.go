package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/internal/mask"
)

// errNotConnected replaces the error of nats.go for a buffer of 0 bytes.
var errNotConnected = errors.New("there is no connection to a NATS server now")

func inWords(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errNotConnected
	}
	return err
}

// Server returns the name of the server to which the connection leads, and its URL without credentials. They are empty while there is no connection.
// If a server has no name of its own, its name is its ID, which no user knows. Then Server returns the address as the name.
func (j JetStream) Server() (name, url string) {
	nc := j.Conn()
	name, url = nc.ConnectedServerName(), mask.URL(nc.ConnectedUrl())
	if name == nc.ConnectedServerId() {
		name = nc.ConnectedAddr()
	}
	return name, url
}

const (
	// accountTime limits the request for an account.
	accountTime = 5 * time.Second
	// infoTime limits the request for the account's usage. It is less than the time after which a source counts as late.
	infoTime = time.Second
	// maxAccount is the maximum length of its name, in bytes. Another user of the account could answer in place of the server.
	maxAccount = 200
)

// Account implements [page.AccountSource].
func (j JetStream) Account(ctx context.Context) (info page.AccountInfo, err error) {
	nc := j.Conn()
	if !nc.IsConnected() {
		return info, errNotConnected
	}
	info.Server, _ = j.Server()
	info.Version, info.Cluster = nc.ConnectedServerVersion(), nc.ConnectedClusterName()
	ctx, cancel := context.WithTimeout(ctx, infoTime)
	defer cancel()
	if info.Info, info.Err = j.AccountInfo(ctx); errors.Is(info.Err, context.DeadlineExceeded) {
		info.Err = fmt.Errorf("the server did not answer within %s, or the user may not publish to $JS.API.INFO", infoTime)
	}
	return info, nil
}

// AccountName returns the name of the connection's account, or its public key if it has no name.
func (j JetStream) AccountName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTime)
	defer cancel()
	m, err := j.Conn().RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	var answer struct {
		Data struct {
			Account string `json:"account"`
			Name    string `json:"account_name"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	if err != nil {
		return "", fmt.Errorf("account of the connection: %w", err)
	}
	name := cmp.Or(answer.Data.Name, answer.Data.Account)
	return strings.ToValidUTF8(name[:min(len(name), maxAccount)], ""), nil
}
