// Package workflows holds the workflows in .github to what keeps them safe. It has tests only.
package workflows
