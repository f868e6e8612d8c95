package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	partitionDocs = "bench/partition.md"
	// figuresBegin and figuresEnd enclose the generated part of the page.
	figuresBegin = "<!-- figures: make bench-partition -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// pair writes a row with the rates of two sides, their ratio, and the processor times per message.
func (f figures) pair(b *strings.Builder, words, benchmark, other string) {
	const ours, rate, cpu = "partition", "msgs/s", "cpu-sec/msg"
	theirRate, ourRate := f.of(benchmark, other, rate).Center, f.of(benchmark, ours, rate).Center
	fmt.Fprintf(b, "| %s | %.0f/s | %.0f/s | %.2f | %.0f µs | %.0f µs |\n", words, theirRate, ourRate, ourRate/theirRate,
		f.of(benchmark, other, cpu).Center*1e6, f.of(benchmark, ours, cpu).Center*1e6)
}

func (f figures) tables(s settings) string {
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
		f.pair(&b, work, "OneMember/handler="+work, "consume")
	}
	b.WriteString("\n| a fleet | pcgroups | partition | ratio | CPU, pcgroups | CPU, partition |\n" + six)
	f.pair(&b, "four members", "Fleet", "pcgroups")
	b.WriteString("\n| time without an owner | changes of 32 partitions | median | longest |\n| --- | --- | --- | --- |\n")
	for _, after := range []string{"hand-over", "crash"} {
		name := "WithoutOwner/after=" + after
		fmt.Fprintf(&b, "| %s | %.0f | %.0f ms | %.0f ms |\n", after, f.of(name, "", "changes").Center, f.of(name, "", "p50-ms").Center,
			f.of(name, "", "max-ms").Center)
	}
	fmt.Fprintf(&b, "\nAn idle member with 64 partitions takes %.2f MB of heap.\n", f.of("Idle", "", "heap-B").Center/1e6)
	return b.String()
}

// partitionPage writes the figures into bench/partition.md.
func (s settings) partitionPage(results string) error {
	f, err := readFigures(results, "/side=")
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
	return os.WriteFile(partitionDocs, []byte(before+figuresBegin+"\n"+f.tables(s)+"\n"+figuresEnd+after), 0o644)
}
