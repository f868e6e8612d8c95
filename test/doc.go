// Package test has the black-box tests of the client on real servers. Other tests in it check the source tree: imports, sizes,
// the public API and the documents.
package test
