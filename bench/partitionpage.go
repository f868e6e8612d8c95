package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

const (
	partitionDocs = "bench/partition.md"
	// figuresBegin and figuresEnd enclose the part of the page that is written.
	figuresBegin = "<!-- figures: make bench-partition -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// medians are those of the rounds, by benchmark and unit.
type medians map[[2]string]float64

func readMedians(path string) (medians, error) {
	values, files := map[[2]string][]float64{}, benchfmt.Files{Paths: []string{path}}
	for files.Scan() {
		r, ok := files.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name := r.Name.String() // "-2" at its end is the number of processors
		if i := strings.LastIndexByte(name, '-'); runtime.GOMAXPROCS(0) > 1 && i > 0 {
			name = name[:i]
		}
		for _, v := range r.Values {
			key := [2]string{name, v.Unit}
			values[key] = append(values[key], v.Value)
		}
	}
	all := medians{}
	for key, v := range values {
		slices.Sort(v)
		all[key] = v[len(v)/2]
	}
	return all, files.Err()
}

// pair writes a row of two sides: their rates, the ratio, and the processor time for a message.
func (m medians) pair(b *strings.Builder, words, benchmark, other string) {
	theirs, ours := benchmark+"side="+other, benchmark+"side=partition"
	fmt.Fprintf(b, "| %s | %.0f/s | %.0f/s | %.2f | %.0f µs | %.0f µs |\n", words, m[[2]string{theirs, "msgs/s"}], m[[2]string{ours, "msgs/s"}],
		m[[2]string{ours, "msgs/s"}]/m[[2]string{theirs, "msgs/s"}], m[[2]string{theirs, "cpu-sec/msg"}]*1e6, m[[2]string{ours, "cpu-sec/msg"}]*1e6)
}

func (m medians) tables(s settings) string {
	var b strings.Builder
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("not known")
	}
	averages := strings.Fields(string(load))
	fmt.Fprintf(&b, "%s, %s, %s/%s, %d processors. %s messages in each of %d rounds, medians. Load average at the end: %s.\n\n",
		time.Now().UTC().Format(time.DateTime+" UTC"), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		strings.TrimSuffix(s.benchtime, "x"), s.rounds, strings.Join(averages[:min(3, len(averages))], " "))
	const six = "| --- | --- | --- | --- | --- | --- |\n"
	b.WriteString("| one member with 64 partitions, handlers of | Consume | member | ratio | CPU, Consume | CPU, member |\n" + six)
	for _, work := range []string{"0s", "1ms", "5ms"} {
		m.pair(&b, work, "OneMember/handler="+work+"/", "consume")
	}
	b.WriteString("\n| a fleet | pcgroups | partition | ratio | CPU, pcgroups | CPU, partition |\n" + six)
	m.pair(&b, "four members", "Fleet/", "pcgroups")
	b.WriteString("\n| time without an owner | changes of 32 partitions | median | longest |\n| --- | --- | --- | --- |\n")
	for _, after := range []string{"hand-over", "crash"} {
		name := "WithoutOwner/after=" + after
		fmt.Fprintf(&b, "| %s | %.0f | %.0f ms | %.0f ms |\n", after, m[[2]string{name, "changes"}],
			m[[2]string{name, "p50-ms"}], m[[2]string{name, "max-ms"}])
	}
	fmt.Fprintf(&b, "\nAn idle member with 64 partitions takes %.2f MB of heap.\n", m[[2]string{"Idle", "heap-B"}]/1e6)
	return b.String()
}

// partitionPage writes the figures into bench/partition.md.
func (s settings) partitionPage(results string) error {
	m, err := readMedians(results)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(partitionDocs)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(page), figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return errors.New(partitionDocs + " has no part for the figures: restore its comments with git")
	}
	return os.WriteFile(partitionDocs, []byte(before+figuresBegin+"\n"+m.tables(s)+"\n"+figuresEnd+after), 0o644)
}
