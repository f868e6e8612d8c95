#!/usr/bin/env bash
# Runs a test binary with its arguments, in the folder of its package, and then each fuzz target of the package for FUZZTIME.
# Use it with go test -exec.
set -euo pipefail
unset GOGC GOMEMLIMIT # ci sets them for the compiler
"$@"
targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' ./*_test.go || true)
[ -n "$targets" ] || exit 0
corpus=$(go env GOCACHE)/fuzz/$(go list .)
while read -r _ target; do
	echo "$PWD $target"
	"$1" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$FUZZTIME" -test.fuzzcachedir "$corpus" </dev/null
done <<<"$targets"
