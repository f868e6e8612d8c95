package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/watch"
)

// prunePage is how many messages are exported and deleted at a time.
const prunePage = 200

// Pruner deletes messages that are older than the retention and whose jobs are all settled.
type Pruner struct{ *core }

func (p *Pruner) pruneLoop(ctx context.Context) {
	if p.Rules.Retention == 0 {
		return
	}
	watch.Every(ctx, max(p.Rules.Interval, time.Second), func() {
		n, err := p.PruneFinished(ctx, time.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			p.Log.Warn("pruning stopped, trying again later", "pruned", n, "error", err)
		case n > 0:
			p.Log.Info("finished messages pruned", "pruned", n)
		}
	})
}

// PruneFinished deletes messages that are older than the retention and whose jobs are all settled, and returns their number. If a
// folder is configured, it exports them first. If the export fails, it deletes nothing.
func (p *Pruner) PruneFinished(ctx context.Context, now time.Time) (int, error) {
	if p.Rules.ExportPath != "" { // also when there is nothing to export, so that the log names a folder that cannot be made at once
		if err := os.MkdirAll(p.Rules.ExportPath, 0o750); err != nil {
			return 0, fmt.Errorf("[prune] export-path: %w", err)
		}
	}
	before := now.Add(-p.Rules.Retention)
	count := 0
	for ctx.Err() == nil {
		seqs := p.Index.Finished(before, prunePage)
		if len(seqs) == 0 {
			return count, nil
		}
		if p.Rules.ExportPath != "" {
			if err := p.export(ctx, seqs, now); err != nil {
				return count, fmt.Errorf("export messages: %w", err)
			}
		}
		if err := p.Messages.Prune(ctx, seqs); err != nil {
			return count, fmt.Errorf("delete messages: %w", err)
		}
		count += len(seqs)
	}
	return count, context.Cause(ctx)
}

// exported is one line of an export. The payload is base64 in JSON.
type exported struct {
	domain.Message
	Jobs []exportedJob
}

type exportedJob struct {
	Consumer        string
	Status          string
	StatusChangedAt time.Time
	Retries         int
}

func (p *Pruner) export(ctx context.Context, seqs []uint64, now time.Time) (err error) {
	messages, err := p.Messages.InOrder(ctx, seqs)
	if err != nil {
		return err
	}
	name := "messages-" + now.UTC().Format(time.DateOnly) + ".jsonl"
	if p.Rules.NodeName != "" {
		name = p.Rules.NodeName + "-" + name
	}
	file, err := os.OpenFile(filepath.Join(p.Rules.ExportPath, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriter(file)
	lines := json.NewEncoder(w)
	for _, m := range messages {
		if err := lines.Encode(p.exported(ctx, m)); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Sync()
}

func (p *Pruner) exported(ctx context.Context, m domain.Message) exported {
	e := exported{Message: m}
	for _, j := range p.Index.JobsOf(m.Channel, m.Seq) {
		if c, ok := p.Consumers.ConsumerByNumber(j.ID.Consumer); ok {
			if complete, err := p.Records.Refresh(ctx, j.ID); err == nil {
				j = complete
			}
			e.Jobs = append(e.Jobs, exportedJob{Consumer: c.ID, Status: j.Status.String(), StatusChangedAt: j.ChangedAt, Retries: j.Retries})
		}
	}
	return e
}
