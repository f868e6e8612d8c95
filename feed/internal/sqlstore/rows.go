package sqlstore

import (
	"encoding/json"
	"time"
)

// The values of the columns status.
const (
	Available = "Available"
	Complete  = "Complete"
	Failed    = "Failed"
)

// Partition is a row of partitions.
type Partition struct {
	ID       string `gorm:"primaryKey"`
	Gate     int
	Status   string
	Owner    *string
	Until    *time.Time
	Epoch    int64
	Sealed   bool
	Version  int64
	Claimant *string
}

// TableName is GORM's hook.
func (Partition) TableName() string { return "partitions" }

// OwnedBy tells whether this lease is that of the row, whose end may have come.
func (r *Partition) OwnedBy(owner string, epoch int64) bool {
	return r.Owner != nil && *r.Owner == owner && r.Epoch == epoch
}

// Item is a row of items. The database gives Seq.
type Item struct {
	PartitionID string `gorm:"primaryKey"`
	ID          string `gorm:"primaryKey"`
	Seq         int64  `gorm:"->"`
	Gate        int
	Status      string
	Attempt     int
	Step        int64
	Errors      *string
	History     *string `gorm:"->"` // null in a new row
	Data        []byte
	NotBefore   *RowTime
	Version     int64
}

// TableName is GORM's hook.
func (Item) TableName() string { return "items" }

// DecodeErrors reads the column errors. Another program may have written what is no list.
func DecodeErrors(text string) []string {
	if text == "" || text == "[]" {
		return nil
	}
	var list []string
	if json.Unmarshal([]byte(text), &list) != nil {
		return []string{text}
	}
	return list
}

// EncodeErrors is the column errors; nil: none.
func EncodeErrors(list []string) *string {
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
