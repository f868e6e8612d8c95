#!/usr/bin/env bash
# Tests pull, pins, partitions and the start of the broker against each supported minor version of nats-server. It does this in a copy of the tree whose
# workspace replaces the server's module. Run it from the root of the repository. Arguments replace the versions below.
set -euo pipefail

# The newest patch of each minor version that SECURITY.md supports. There is no 2.13.
versions=(v2.11.17 v2.12.15 v2.14.9 v2.15.2)
[ $# = 0 ] || versions=("$@")
# Faults of the server are tested only with the version of go.mod.
faults='^TestConsume(InACluster|OverFaults)$'
module=github.com/nats-io/nats-server/v2

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
	[ ! -e "$name" ] || printf '%s\0' "$name"
done | xargs -0 cp --parents -t "$copy"
cp go.work "$copy/go.work.original"
cd "$copy"

failed=()
for version in "${versions[@]}"; do
	echo "nats-matrix: nats-server $version"
	cp go.work.original go.work
	go work edit -replace "$module=$module@$version"
	go mod download "$module"
	found=$(go list -m -f '{{.Replace.Version}}' "$module")
	[ "$found" = "$version" ] || { echo "nats-matrix: the workspace builds with $found and not $version: correct the replace directive in this script" >&2; exit 1; }
	{
		go test -short -count 1 ./test -run '^Test(Fetch|Consume|Messages|Pin|Standby|Unpin|APin|AnUnpin|Advisories)' -skip "$faults" &&
			go test -short -count 1 ./natsembed ./cmd/jetpull -run '^Test(StoreOutlivesTheServer|Restart|DeployedCommandRuns)$' &&
			go test -short -count 1 ./test/partition -run '^Test(Fact|Open|MembersAndWhatIsGone|HandOverAfterAnyResult|HandOversRepeatNothing|Resize)' &&
			go test -short -count 1 ./broker -run '^Test(PushDelivery|RetriesSurviveARestart|OneProcessPerStore)$'
	} || failed+=("$version")
done
if [ ${#failed[@]} != 0 ]; then
	echo "nats-matrix: FAILED with nats-server ${failed[*]}: see above; repair what the tests name, or end the support of that version in SECURITY.md" >&2
	exit 1
fi
echo "nats-matrix: all pass with nats-server ${versions[*]}"
