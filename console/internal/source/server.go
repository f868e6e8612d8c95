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

// errNotConnected is in words what nats.go states of a buffer of no bytes.
var errNotConnected = errors.New("there is no connection to a NATS server now")

func inWords(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return errNotConnected
	}
	return err
}

// Server is the name of the server that the connection leads to, and its URL without what authenticates. They are empty while there is no connection.
// A server without a name of its own has its ID as its name, which no user knows: then it is the address.
func (j JetStream) Server() (name, url string) {
	nc := j.Conn()
	name, url = nc.ConnectedServerName(), mask.URL(nc.ConnectedUrl())
	if name == nc.ConnectedServerId() {
		name = nc.ConnectedAddr()
	}
	return name, url
}

const (
	// accountTime bounds the request for an account.
	accountTime = 5 * time.Second
	// infoTime bounds the request for what the account uses. It is less than the time from which a source answers late.
	infoTime = time.Second
	// maxAccount bounds its name, in bytes: another user of the account could answer in place of the server.
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

// AccountName is the name of the account of the connection, or its public key if it has no name.
func (j JetStream) AccountName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTime)
	defer cancel()
	m, err := j.Conn().RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err != nil {
		return "", fmt.Errorf("account of the connection: %w", err)
	}
	var answer struct {
		Data struct {
			Account string `json:"account"`
			Name    string `json:"account_name"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return "", fmt.Errorf("account of the connection: %w", err)
	}
	name := cmp.Or(answer.Data.Name, answer.Data.Account)
	return strings.ToValidUTF8(name[:min(len(name), maxAccount)], ""), nil
}
