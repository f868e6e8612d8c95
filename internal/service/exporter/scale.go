package exporter

import (
	"math"
	"net/http"
	"strconv"

	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// scale is how many processes a consumer needs. Load is Pending and AckPending: a message in the hands of a process is still work, and without a
// process nobody would finish it.
type scale struct {
	Processes  uint64 `json:"processes"`
	Load       uint64 `json:"load"`
	Pending    uint64 `json:"pending"`
	AckPending uint64 `json:"ack_pending"`
}

func (c Config) scale(r *http.Request) (any, error) {
	per, err := number(r, "per", "the number of messages that one process handles within the time that you want, 1 or more")
	if err != nil {
		return nil, err
	}
	most := uint64(math.MaxUint64)
	if r.URL.Query().Has("max") {
		if most, err = number(r, "max", "the largest number of processes, 1 or more"); err != nil {
			return nil, err
		}
	}
	info, err := c.info(r.Context(), r.PathValue("stream"), r.PathValue("consumer"))
	if err != nil {
		return nil, err
	}
	s := scale{Pending: info.NumPending, AckPending: uint64(info.NumAckPending)}
	s.Load = s.Pending + s.AckPending
	if s.Processes = s.Load / per; s.Load%per > 0 {
		s.Processes++
	}
	s.Processes = min(s.Processes, most)
	return s, nil
}

func number(r *http.Request, name, give string) (uint64, error) {
	n, err := strconv.ParseUint(r.URL.Query().Get(name), 10, 32)
	if err != nil || n == 0 {
		return 0, httpserve.BadQuery(r, name, give)
	}
	return n, nil
}
