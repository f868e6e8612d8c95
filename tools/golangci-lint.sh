#!/usr/bin/env bash
# Builds golangci-lint into the folder OUT with only the linters that .golangci.yml enables. Compiling all 118 linters and their imports takes
# a third longer. Upstream lists the linters in one file. The script shortens this file in a copy of the module.
set -euo pipefail
cd "$(dirname "$0")"
out=$1
module=github.com/golangci/golangci-lint/v2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod go.sum "$work"
# Without its download, go list prints no folder.
go mod download $module
cp -R "$(go list -m -f '{{.Dir}}' $module)" "$work/source"
chmod -R u+w "$work/source"
list=$work/source/pkg/lint/lintersdb/builder_linter.go
# typecheck, which is always on, is in package golinters.
enabled="golinters $(sed -n 's/^    - \([a-z]*\)$/\1/p' ../.golangci.yml | tr "\n" " ")"
# The file consists of paragraphs, separated by empty lines. One contains the imports, and nearly every other one a linter.
awk -v enabled=" $enabled" '
	function wanted(name) { return index(enabled, " " name " ") }
	BEGIN { RS = ""; ORS = "\n\n" }
	/^\t*linter\.NewConfig\(/ { name = $0; sub(/^[^(]*\(/, "", name); sub(/\..*/, "", name); if (!wanted(name)) next }
	/^import/ {
		n = split($0, lines, "\n"); $0 = ""
		for (i = 1; i <= n; i++) {
			name = lines[i]; sub(/.*\/golinters\//, "", name); sub(/".*/, "", name)
			if (lines[i] !~ /golinters\// || wanted(name)) $0 = $0 lines[i] "\n"
		}
	}
	{ print }' <(sed 's/^\treturn \[\].*Config{$/&\n/' "$list") >"$work/list"
mv "$work/list" "$list"
go mod edit -replace "$module=$work/source" "$work/go.mod"
go build -modfile "$work/go.mod" -ldflags '-s -w' -o "$out/" $module/cmd/golangci-lint
