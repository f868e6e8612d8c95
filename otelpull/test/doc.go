// Package test tests otelpull against a real server, and its dashboard against a scrape. It is a module of its own, so that a
// user of otelpull does not get what these tests need.
package test
