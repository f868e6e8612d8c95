#!/usr/bin/env bash
# Writes the licence notices of all software in the jetpull command into the folder OUT: licenses.txt, which is in each package of a release, and
# licenses.txt.gz, which the command embeds. It needs GNU find and sed. Go itself copies the notices: go mod vendor does so for each package, from its folder up to its module's.
set -euo pipefail
export LC_ALL=C # the order of sort
out=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Use the versions of the command's go.mod, without the workspace, and the platforms of .goreleaser.yaml.
export GOWORK=off CGO_ENABLED=0
go mod vendor -C cmd/jetpull -o "$work/vendor"
for platform in {linux,darwin,windows}/{amd64,arm64}; do
	GOOS=${platform%/*} GOARCH=${platform#*/} go list -C cmd/jetpull -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' .
done | grep -v '^github.com/jetpull/jetpull[/ ]' | sort -u >"$work/modules"

# Go's standard library, and the files in folders with the name thirdparty, do not belong to modules.
library="Go standard library"
mkdir "$work/vendor/$library"
cp "$(go env GOROOT)"/{LICENSE,PATENTS} "$work/vendor/$library"
find . -path ./out -prune -o -path '*/thirdparty/LICENSE' -printf '%P\n' | xargs cp --parents -t "$work/vendor"
{
	echo "$library"
	find . -path ./out -prune -o -path '*/thirdparty/LICENSE' -printf '%P\n' | xargs -n 1 dirname
	cat "$work/modules"
} >"$work/names"

# Each text is stored once, without the spaces that differ between copies, and with the names of its files.
mkdir "$work/texts"
cd "$work/vendor"
sed 's/ v[^ ]*$//' "$work/names" | while read -r name; do
	find "./$name" -type f ! -name '*.go' -printf '%p\n' | grep -iE '/[^/]*(licen[cs]e|copying|copyright|notice|patents)[^/]*$' | LC_ALL=C sort \
		>"$work/notices" || { echo "licenses: Go has found no licence of $name: ask its authors, or use another module" >&2; exit 1; }
	while read -r notice; do
		sed -e 's/[[:space:]]*$//' -e '/./,$!d' "$notice" >"$work/text"
		text=$(sha256sum <"$work/text" | cut -c 1-64)
		[ -e "$work/texts/$text" ] || { mv "$work/text" "$work/texts/$text"; echo "$text" >>"$work/order"; }
		echo "${notice#./}" >>"$work/texts/$text.names"
	done <"$work/notices"
done

rule=$(printf '=%.0s' {1..80})
{
	printf 'The jetpull command holds software of others. Their licence notices follow, each under the names of its files.\n\n'
	cat "$work/names"
	while read -r text; do
		printf '\n%s\n%s\n%s\n\n' "$rule" "$(sort -u "$work/texts/$text.names")" "$rule"
		cat "$work/texts/$text"
	done <"$work/order"
} >"$out/licenses.txt"
gzip -9 -n <"$out/licenses.txt" >"$out/licenses.txt.gz"
