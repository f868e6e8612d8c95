package view

import (
	"hash/fnv"
	"strings"
)

// Place is what the pages are about. The header shows it.
type Place struct {
	// Environment is its name by configuration; empty: it has none.
	Environment string
	// Server is the name of the server, URL its address, and Account the account of the connection; empty: they are not known.
	Server, URL, Account string
}

// colors is the number of colours of environments in style.css. With 7, the usual names have different ones.
const colors = 7

// Color is the number of the environment's colour, which depends on its name alone.
func (p Place) Color() int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(p.Environment)) // a hash takes all
	return int(sum.Sum32() % colors)
}

// Title is all of it in a sentence.
func (p Place) Title() string {
	var parts []string
	for _, one := range []struct{ label, value string }{
		{"environment ", p.Environment}, {"server ", p.Server}, {"at ", p.URL}, {"account ", p.Account},
	} {
		if one.value != "" {
			parts = append(parts, one.label+one.value)
		}
	}
	return strings.Join(parts, ", ")
}
