// Package test tests otelpull against a real server, and its dashboard against a scrape. It is a module of its own, so that
// users of otelpull do not get its dependencies.
package test
