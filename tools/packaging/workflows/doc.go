// Package workflows checks the security of the workflows in .github: permissions and pinned actions. It has tests only.
package workflows
