#!/usr/bin/env bash
# Fetches the third-party files of the console and its tests from the npm registry, at these versions, and checks the
# hashes of the packages. To upgrade, change the version and its hash, run this script, and run the tests.
set -euo pipefail
cd "$(dirname "$0")"

packages='
htmx.org 4.0.1 5fba65616ca148a86d377e9771bcada7f35faee3558651feb929eea425e13b3c
axe-core 4.14.1 e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r name version sum; do
	[ -n "$name" ] || continue
	archive=$(cd "$work" && npm pack --silent "$name@$version")
	echo "$sum  $work/$archive" | sha256sum --check --quiet || { echo "thirdparty: $name@$version is not the package that this script names" >&2; exit 1; }
	mkdir "$work/$name"
	tar -xzf "$work/$archive" -C "$work/$name" --strip-components 1
done <<<"$packages"

view=internal/view/thirdparty
cp "$work/htmx.org/dist/htmx.min.js" "$work/htmx.org/dist/ext/hx-sse.min.js" "$work/htmx.org/LICENSE" "$view/"
(cd "$view" && sha256sum htmx.min.js hx-sse.min.js LICENSE >SHA256SUMS)
cp "$work/axe-core/axe.min.js" test/testdata/axe.min.js
cp "$work/axe-core/LICENSE" test/testdata/axe-LICENSE
