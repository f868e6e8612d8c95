#!/usr/bin/env bash
# Prepares the modules of this repository for a version, and proves that users can install it. Run it from the root of the repository:
#
#	tools/release.sh commit v0.1.0	# on a new branch: sets the version, makes the go.mod files require each other at it, and adds tags
#	tools/release.sh check v0.1.0	# runs go install and go get with a module proxy that is made from the tree
set -euo pipefail
sed --version >/dev/null 2>&1 || { echo "release: needs GNU sed, find and cp, as Linux has" >&2; exit 1; }

own=github.com/jetpull/jetpull
number='[0-9]+\.[0-9]+\.[0-9]+'
work=

fail() {
	echo "release: $*" >&2
	exit 1
}

# modules prints the folders of the modules in go.work.
modules() { sed -n 's/^\t\(\.\/\)\{0,1\}//p' go.work; }

# replace FILE PATTERN TEXT replaces the matches of a pattern in the lines of a file.
replace() {
	grep -qE "$2" "$1" || fail "$1: no line matches $2"
	sed -i -E "s|$2|$3|" "$1"
}

# stamp VERSION writes the version into the files, and dates the changelog: the unreleased changes become the version's section. If the version has a
# section already, as the first version has, that section gets the date, and unreleased changes stay above it, for users of earlier builds.
stamp() {
	local version=${1#v} unreleased='^## \[Unreleased\]$' section
	section="## [$version]"
	replace deploy/helm/jetpull/Chart.yaml "^version: $number" "version: $version"
	replace deploy/helm/jetpull/Chart.yaml "^appVersion: v$number" "appVersion: v$version"
	replace sdk/typescript/package.json "^  \"version\": \"$number" "  \"version\": \"$version"
	replace sdk/python/pyproject.toml "^version = \"$number" "version = \"$version"
	if grep -qxF "$section" CHANGELOG.md; then
		replace CHANGELOG.md "$unreleased" "&\n\nNothing yet.\n\n## Changes between builds before $version"
		replace CHANGELOG.md "^## \[$version\]\$" "& - $(date +%F)"
	else
		! grep -qF "$section" CHANGELOG.md || fail "CHANGELOG.md has a section of $version with a date: is it released?"
		replace CHANGELOG.md "$unreleased" "&\n\n$section - $(date +%F)"
		echo "[$version]: https://$own/releases/tag/v$version" >>CHANGELOG.md
	fi
}

# prepare VERSION rewrites the go.mod files: it removes replace directives, and requires our other modules at the version.
prepare() {
	modules | while read -r dir; do
		sed -i -E "/^replace \(/,/^\)/d; /^replace /d; s|^((require )?\t?$own(/[^ ]+)?) v[^ ]+|\1 $1|" "$dir/go.mod"
		go mod edit -fmt "$dir/go.mod"
	done
}

# tag VERSION commits the go.mod files of a version, and adds a tag for each module.
tag() {
	prepare "$1"
	git commit --quiet --all --message "release: go.mod files of $1, for the tags alone"
	modules | sed "s|\$|/$1|; s|^\./||" | xargs -n 1 git tag
}

# commit VERSION commits a release on a branch. The first commit, with the date and the version, is for main. The second has the tags.
commit() {
	[ -z "$(git status --porcelain)" ] || fail "the tree has changes that are not committed: commit or remove them"
	git switch --create "release-$1"
	stamp "$1"
	git commit --quiet --all --message "release: $1"
	tag "$1"
	cat <<-END

		Nothing is pushed yet. Look at the two commits, and then push. The last command starts the workflow release:
		git push origin release-$1~1:main
		git push origin $(git tag --points-at HEAD | grep / | tr '\n' ' ')
		git push origin $1
	END
}

# public prints the packages that users can import. It omits commands, internal packages, and the modules without a promise of compatibility.
public() {
	GOWORK= go list -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' work | grep -vE "/internal(/|\$)|^$own/(test|bench|examples)(/|\$)"
}

# named FILE prints our modules that a go.mod or go.sum names.
named() { grep -oE "(^|[[:space:]])$own(/[^[:space:]]+)?" "$1" | tr -d '[:blank:]' | LC_ALL=C sort -u; }

# use PACKAGE VERSION NEXT creates a module in this folder that imports a package, builds and tests it as a user does, and upgrades it.
use() {
	printf 'package main\n\nimport _ "%s"\n\nfunc main() {}\n' "$1" >main.go
	printf 'package main\n\nimport "testing"\n\nfunc TestRuns(*testing.T) { main() }\n' >main_test.go
	go mod init example.com/user
	for version in "$2" "$3"; do
		go get "$1@$version" && go mod tidy && go build -o /dev/null . && go test . || return
	done
	go list -deps -f '{{with .Module}}{{.Path}}{{end}}' . | LC_ALL=C sort -u >built
}

# whitebox matches the modules whose tests use unexported names and so cannot be in separate modules. The go.sum of a program that uses such a
# module names the modules that these tests need. Its go.mod does not.
whitebox="^$own/(broker|relay|feed)\$"

# judge NEXT FOLDER... reports names that the modules of users must not contain: one of our modules at another version than the next, in go.mod a
# module of which the user's program has no package, and in go.sum a module of which no public package is built.
judge() {
	local next=$1 status=0
	shift
	for user in "$@"; do
		for module in $(grep "$own" "$user/go.mod" | grep -v " $next\( \|\$\)" | grep -oE "$own[^[:space:]]*"); do
			echo "$user: go.mod does not ask for $module $next: our modules must ask for each other at one version; see prepare"
			status=1
		done
		for module in $(named "$user/go.mod" | LC_ALL=C comm -23 - "$user/built"); do
			echo "$user: go.mod asks for $module, and the program has no package of it: move the tests that import it to a module of their own"
			status=1
		done
		grep -qE "$whitebox" "$user/built" || for module in $(named "$user/go.sum" | LC_ALL=C comm -23 - <(LC_ALL=C sort -u "${@/%//built}")); do
			echo "$user: go.sum has $module, of which no public package is built: move the tests that import it to a module of their own"
			status=1
		done
	done
	return $status
}

# check VERSION installs the command, and builds and tests a program for each public package, as a user does: without a checkout, from a proxy that
# go creates from a repository with the files of the tree. Each program then upgrades to the next patch version, which has the same code.
check() {
	local version=$1 next=${1%.*}.$((${1##*.} + 1)) failed=() users=() cache packages
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir "$work/tree" "$work/bin"
	git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
		[ ! -e "$name" ] || printf '%s\0' "$name"
	done | xargs -0 cp --parents -t "$work/tree"
	mapfile -t packages < <(public)
	[ ${#packages[@]} != 0 ] || fail "the tree has no public package"
	cache=$(go env GOMODCACHE)/cache/download
	cd "$work/tree"
	export GIT_AUTHOR_NAME=check GIT_AUTHOR_EMAIL=check@localhost GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check@localhost GIT_CONFIG_COUNT=1 \
		GIT_CONFIG_KEY_0="url.file://$work/tree.insteadOf" GIT_CONFIG_VALUE_0="https://$own"
	git init --quiet
	git add .
	git commit --quiet --message tree
	export GOWORK=off GONOSUMDB=$own GOBIN=$work/bin GOFLAGS='-modcacherw -mod=mod'
	for v in "$version" "$next"; do
		tag "$v"
		modules | sed "s|^\.\$||; s|^.|/&|; s|^|$own|; s|\$|@$v|" | (cd "$work" && GOPROXY=direct GOMODCACHE="$work/proxy" xargs go mod download)
	done
	export GOMODCACHE=$work/modules GOPROXY="file://$work/proxy/cache/download,file://$cache,$(go env GOPROXY)"
	cd "$work"
	go install "$own/cmd/jetpull@$version"
	[ "$(bin/jetpull version)" = "jetpull $version" ] ||
		fail "jetpull version prints $(bin/jetpull version), and the tag is $version: see func version in cmd/jetpull/main.go"
	for package in "${packages[@]}"; do
		echo "release: a user of $package"
		mkdir -p "$work/users/$package"
		if (cd "$work/users/$package" && use "$package" "$version" "$next"); then users+=("$package"); else failed+=("$package"); fi
	done
	cd "$work/users"
	judge "$next" "${users[@]}" || failed+=("modules that are named for nothing")
	[ ${#failed[@]} = 0 ] || fail "see above: ${failed[*]}"
}

# The test runs single functions.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
[[ ${1-} =~ ^(commit|check)$ ]] || fail "${1-} is neither commit nor check"
[[ ${2-} =~ ^v(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}$ ]] || fail "${2-} is no release: give one such as v0.1.0"
"$1" "$2"; exit
