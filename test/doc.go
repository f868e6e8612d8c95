// Package test has the black-box tests of the client on real servers, and those that hold the tree to its rules: imports, sizes,
// the public API and the documents.
package test
