// Package registry keeps the records of a key-value bucket in memory and follows their changes.
//
// One goroutine applies all changes in the order of their revisions, including changes of this process. A write returns when this
// process has applied it. A read has three answers: the record, [stored.ErrNotFound], and [stored.ErrUnavailable] if it is not known now.
package registry
