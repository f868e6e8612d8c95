#!/usr/bin/env bash
# Publishes out/site/dist as a version of the site, on the branch gh-pages of a repository: publish.sh VERSION REPOSITORY
# The branch has a folder for each version, and a page that lists them. The workflow site runs this.
set -euo pipefail
version=$1
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
if git ls-remote --exit-code --heads "$2" gh-pages >/dev/null; then
	git clone --quiet --depth 1 --branch gh-pages "$2" "$pages"
else
	git init --quiet --initial-branch gh-pages "$pages"
fi
rm -rf "${pages:?}/$version"
cp -r out/site/dist "$pages/$version"
cd "$pages"
touch .nojekyll # otherwise GitHub omits folders that begin with _
# The latest release comes first, and main last.
versions=$( (find . -mindepth 1 -maxdepth 1 -type d -name 'v*' -printf '%f\n' | sort -rV; [ ! -d main ] || echo main) )
cp "$(head -n 1 <<<"$versions")/llms.txt" llms.txt
{
	echo '<!doctype html><html lang="en"><meta charset="utf-8"><title>jetpull</title><h1>jetpull: versions of the documents</h1><ul>'
	while read -r v; do echo "<li><a href=\"$v/\">$v</a></li>"; done <<<"$versions"
	echo '</ul></html>'
} >index.html
git add --all
git -c user.name=site -c user.email=site@users.noreply.github.com commit --quiet --allow-empty --message "site: $version"
git push --quiet "$2" gh-pages
