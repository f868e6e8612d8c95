package feed

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxErrors    = 50
	maxErrorText = 2048
)

// partitionRow is a row of partitions.
type partitionRow struct {
	ID       string `gorm:"primaryKey"`
	Gate     int
	Status   Status
	Owner    *string
	Until    *time.Time
	Epoch    int64
	Sealed   bool
	Version  int64
	Claimant *string
}

// TableName is GORM's hook.
func (partitionRow) TableName() string { return "partitions" }

func (r *partitionRow) partition() Partition {
	p := Partition{ID: r.ID, Gate: r.Gate, Status: r.Status, Epoch: r.Epoch, Version: r.Version, Sealed: r.Sealed}
	if r.Owner != nil && *r.Owner != "" {
		p.Owner = *r.Owner
		if r.Until != nil {
			p.Until = r.Until.UTC()
		}
	}
	return p
}

func (r *partitionRow) ownedBy(owner string, epoch int64) bool {
	return r.Owner != nil && *r.Owner == owner && r.Epoch == epoch
}

// itemRow is a row of items. The database gives Seq.
type itemRow struct {
	PartitionID string `gorm:"primaryKey"`
	ID          string `gorm:"primaryKey"`
	Seq         int64  `gorm:"->"`
	Gate        int
	Status      Status
	Attempt     int
	Step        int64
	Errors      *string
	Data        []byte
	NotBefore   *time.Time
	Version     int64
}

// TableName is GORM's hook.
func (itemRow) TableName() string { return "items" }

func (r *itemRow) item() Item {
	it := Item{
		ID: r.ID, Partition: r.PartitionID, Gate: r.Gate, Status: r.Status, Attempt: r.Attempt, Data: r.Data,
		Version: r.Version, step: r.Step, seq: r.Seq,
	}
	if r.Errors != nil {
		it.Errors = decodeErrors(*r.Errors)
	}
	if r.NotBefore != nil {
		it.NotBefore = r.NotBefore.UTC()
	}
	return it
}

// decodeErrors reads the column errors. Another program may have written what is no list.
func decodeErrors(text string) []string {
	if text == "" || text == "[]" {
		return nil
	}
	var list []string
	if json.Unmarshal([]byte(text), &list) != nil {
		return []string{text}
	}
	return list
}

func encodeErrors(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil // a list of strings is always JSON
	}
	text := string(b)
	return &text
}

// addError appends an error's text, cleaned for columns that hold no zero byte.
func addError(list []string, text string) []string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	list = append(list[:len(list):len(list)], text)
	if len(list) > maxErrors {
		list = list[len(list)-maxErrors:]
	}
	return list
}
