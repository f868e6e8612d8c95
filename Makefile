SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-relay demo-feed demo-partition demo-console screenshots console-assets build test test-race test-system test-programs test-plain test-tools tidy lint lint-modules lint-tools fuzz examples sim sim-planted soak nightly bench bench-against bench-broker bench-cluster bench-relay bench-relay-sync bench-feed bench-console bench-partition cover api reference sdk site licenses release release-snapshot release-check release-prepare nats-matrix nightly-release nightly-simulation nightly-tests vulncheck prepare ci

GO       ?= go
BIN      := $(CURDIR)/bin
OUT      := out
TESTARGS ?=
BENCHARGS ?=
REV      ?=
VERSION  ?= v0.1.0
# A number of inputs. With a duration, Go's fuzzing can exceed its own deadline and fail.
export FUZZTIME ?= 20000x
SEED     ?=
COUNT    ?= 2000
DURATION ?= 2m

# The folders of the modules in go.work.
MODULES := $(shell sed -n 's/^\t\.\/\{0,1\}/.\//p' go.work)
# The modules whose go.mod and go.sum must be tidy.
TIDY    ?= $(MODULES) ./tools ./tools/packaging
# Our packages in tools, which is a module that is not in go.work.
TOOLS   := ./apidoc ./deploylint ./sbom ./scripts
# Debugging information takes an eighth of the compiler's time.
NODEBUG := -gcflags=all=-dwarf=false
# The race detector needs a C compiler. A test binary without races sleeps for a second at its end, unless GORACE sets another time.
# SQLite is C that was translated to Go. The detector does not watch it, because that takes as long as the rest of the feed's tests.
# It must watch all other packages, because packages share code of generic types.
RACE    := $(if $(shell command -v $$($(GO) env CC)),-race -trimpath $(NODEBUG) -gcflags=modernc.org/sqlite/lib=-race=false)
export GORACE ?= atexit_sleep_ms=0
# Builds without the race detector have the flags of a release, so that the programs of one run share one build.
PLAIN   := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -vet=off $(NODEBUG)'
TESTENV ?= $(PLAIN)
# The number of packages that are tested at a time: one more than the processors, because many tests mostly wait. The longest tests start first.
PACKAGES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# The packages that test omits: those with only benchmarks, the relay's simulation, which test-plain runs, and PROGRAMS.
UNTESTED := /bench(/(broker|client|feed|partition|relay))?$$|/relay/internal/sim$$|/cmd/jetpull(/browser)?$$|/test/(inbox|limit|partition|security|workers)$$|/examples/
LONGEST  := ./feed ./relay ./test ./broker ./broker/internal/journal . ./broker/internal/httpapi ./test/model ./partition
# Packages whose tests run programs, or open pages in a browser. The code of these programs is tested under the race detector in its own
# packages. nightly also runs these tests under it, which takes four times the processor time.
# These tests mostly wait: for a program, for a second in which it must do nothing, or for a timeout. They use a fifth of two processors.
WAITING  := $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
PROGRAMS := ./cmd/jetpull ./cmd/jetpull/browser ./test/workers ./test/security ./test/partition ./test/limit ./test/inbox ./bench ./bench/client ./examples/...

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
# any converts a list of names to a regular expression.
space    := $() $()
any       = $(subst $(space),|,$(strip $(1)))
# Tests that spend most of their processor time in servers of a cluster, a simulation or a compiler, or on a large volume. They run without the
# race detector in test-system, and with it in nightly. VOLUMES are their packages.
VOLUME   := TestBrokersOnAClusterLoseNoJob TestStartsAndQuorumOfACluster TestContractOnThreeServers TestContractOnACluster \
	TestModelAgreesWithACluster TestIdleReceiversHaveNoGoroutine TestDeletedReceiversAreCollected TestResponseThatIsLargerAsJSON \
	TestOpenedStoreHasTheCompleteList TestPostgresFull TestSQLiteFull TestFetchReadsWhatItReturns TestPruneDatesInSteps TestLargestBody \
	TestSimulation TestSimulationFindsPlantedBugs TestLossOfPower TestSyncsPerMessage TestTakeOver TestExamplesCanBeCopied
VOLUMES  := ./feed ./relay ./test ./broker ./broker/internal/httpapi ./relay/internal/store ./limit ./partition ./test/model ./test/sim

demo: ## Handle a backlog of 100,000 orders on an embedded server, and print the server's counters
	$(GO) run ./examples/demo

demo-relay: ## Send 10,000 events of three sources through a relay to four receivers; writes out/demo-relay.svg
	$(GO) run ./examples/demo-relay

demo-feed: ## Rank 500 résumés with two watchers, and kill one of them
	$(GO) run ./examples/demo-feed

demo-partition: ## Keep the orders of 40 customers in order over three processes, and kill one of them
	$(GO) run ./examples/demo-partition

# This does not use go run, which exits with 1 after an interrupt, regardless of the program.
demo-console: ## Serve the console on 127.0.0.1:8222, with all systems and some failures
	$(GO) build -o $(BIN)/demo-console ./cmd/jetpull/browser/demo
	$(BIN)/demo-console

screenshots: ## Write the screenshots in docs/console with Debian's chromium, from the data of demo-console
	@mkdir -p docs/console
	SCREENSHOTS=$(CURDIR)/docs/console $(GO) test ./cmd/jetpull/browser -run '^TestScreenshots$$' -count 1

console-assets: ## Fetch the console's third-party files from npm, at the versions in console/thirdparty.sh, and check their hashes
	console/thirdparty.sh

build: ## Compile every package of every module
	$(GO) build work

# In ci, the environment enables the race detector, which takes three times as long.
test: ## Run the tests of all packages, except those that are in test-system
	$(TESTENV) $(GO) test -p $(PACKAGES) -short -timeout 30m -skip '^($(call any,$(VOLUME)))$$' $(TESTARGS) $(TESTEXEC) \
		$(LONGEST) $$($(GO) list work | grep -vE '$(UNTESTED)')

test-race: ## Run test under the race detector, which needs a C compiler
	$(MAKE) test TESTENV="CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) -vet=off $(RACE)'"

test-system: test-programs test-plain test-tools ## Run the tests that start processes and browsers, or need much volume or memory

test-programs: ## Run the part of test-system that runs programs, or opens pages in a browser
	$(PLAIN) $(GO) test -p $(WAITING) -parallel $(WAITING) -short -timeout 30m $(TESTARGS) $(TESTEXEC) $(PROGRAMS)

# Tests that measure memory are meaningless under the race detector. The relay's simulation and its scenarios take eight times as long under it.
test-plain: ## Run the part of test-system whose tests cannot be under the race detector
	$(PLAIN) $(GO) test $(TESTARGS) -timeout 30m ./relay/internal/sim -sim.seed 1 -sim.count 100
	$(PLAIN) $(GO) test -p $(WAITING) -short -timeout 30m -run '^($(call any,$(VOLUME)))$$' $(TESTARGS) $(VOLUMES)
	$(PLAIN) $(GO) test -exec 'env -u GOGC -u GOMEMLIMIT' -run '^(TestMemoryAfterTraffic|TestRetentionLevelsOff)$$' $(TESTARGS) ./test ./broker

test-tools: ## Run the part of test-system that tests the tools and the packages of a release
	cd tools && GOWORK=off $(PLAIN) $(GO) test -count 1 $(TOOLS)
	cd tools/packaging && GOWORK=off $(PLAIN) $(GO) test -count 1 ./...

tidy: ## Fail if the go.mod or go.sum of a module is not tidy
	@printf '%s\n' $(TIDY) | xargs -P 4 -I MODULE bash -c \
		'cd MODULE && difference=$$(GOWORK=off $(GO) mod tidy -diff) || { echo "go mod tidy -diff: MODULE"; echo "$$difference"; exit 1; }'

lint: lint-modules lint-tools ## Run golangci-lint, at the version in tools/go.mod

# It includes vet.
lint-modules: $(BIN)/golangci-lint ## Run golangci-lint on the modules of go.work
	$(BIN)/golangci-lint run $(addsuffix /...,$(MODULES))

lint-tools: $(BIN)/golangci-lint ## Run golangci-lint on the tools
	cd tools && GOWORK=off $(PLAIN) $(BIN)/golangci-lint run --config ../.golangci.yml $(addsuffix /...,$(TOOLS))

# -fuzz adds the instrumentation with which coverage guides the fuzzing.
fuzz: ## Run every fuzz target for FUZZTIME (20000x: 20,000 inputs)
	@grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u | while read -r dir; do \
		$(GO) test -c -fuzz . -ldflags '-s -w' -o $(CURDIR)/$(OUT)/fuzz/test "$$dir"; \
		(cd "$$dir" && $(CURDIR)/tools/fuzz.sh $(CURDIR)/$(OUT)/fuzz/test -test.run '^$$'); \
	done

examples: ## Run the tests of the examples
	$(GO) test -timeout 10m $(TESTARGS) ./examples/...

sim: ## Simulate COUNT schedules within DURATION, from SEED (random and printed unless set)
	$(GO) test ./test/sim -v -run '^TestSimulation$$' -count 1 -timeout 0 $(TESTARGS) \
		-sim.count=$(COUNT) -sim.duration=$(DURATION) $(if $(SEED),-sim.seed=$(SEED))

sim-planted: ## Plant bugs in the client, and fail if the simulation does not find each within 400 seeds
	$(GO) test ./test/sim -v -run '^TestPlantedBugs$$' -count 1 -timeout 0 $(TESTARGS) -sim.planted

soak: ## Run a broker with retention through 24 accelerated hours, and check that memory and store level off
	$(GO) test ./broker -v -run '^TestRetentionLevelsOff$$' -count 1 -timeout 0 $(TESTARGS) -broker.day

nightly: nightly-simulation nightly-tests nightly-release ## Run the checks that take too long for ci: see CONTRIBUTING.md

nightly-release: tidy build release-check release-snapshot nats-matrix vulncheck ## Run the part of nightly that checks releases

nightly-simulation: COUNT = 100000
nightly-simulation: DURATION = 4h
nightly-simulation: sim-planted sim soak ## Run the simulations of nightly
	$(GO) test ./feed -v -run '^(TestSimulation|TestPlantedBugs)$$' -count 1 -timeout 0 $(TESTARGS) -feed.count=50000 -feed.planted=true
	$(GO) test ./relay/internal/sim -v -timeout 0 -count 1 $(TESTARGS) -sim.count 20000 -sim.planted
	$(GO) test ./partition -v -run '^TestSimulation$$' -timeout 0 -count 1 $(TESTARGS) -partition.count 50000

nightly-tests: FUZZTIME = 2000000x
nightly-tests: lint fuzz ## Run the linter, the fuzz targets and all tests of nightly
	$(GO) test $(RACE) -timeout 2h -count 1 -skip '^(TestMemoryAfterTraffic|TestRetentionLevelsOff)$$' $(TESTARGS) work
	$(GO) test ./test/inbox -v -run '^TestEffectsAreExact$$' -timeout 0 -count 1 $(TESTARGS) -inbox.messages 100000 -inbox.faults 300
	$(GO) test ./test/partition -v -timeout 0 -count 1 $(TESTARGS) -partition.messages 200000 -partition.partitions 64 -partition.faults 104

bench: ## Compare the client with nats.go; writes figures and a chart to out/bench
	$(GO) run ./bench $(BENCHARGS)

bench-against: ## Compare the client with that of REV (a revision, or the folder of a checkout), in alternating rounds
	@test -n "$(REV)" || { echo "make bench-against: REV is missing: REV=main, or REV=../other" >&2; exit 2; }
	$(GO) run ./bench -against $(REV) $(BENCHARGS)

bench-cluster: ## Measure what sync_interval always costs on three servers: publish, broadcast, push
	$(GO) run ./bench -package ./bench/broker -run Cluster -col /sync -rounds 6 -benchtime 5000x $(BENCHARGS)

bench-broker: ## Measure the webhook broker under load, and also a running one at JETPULL_BENCH_BESIDE if that is set
	$(GO) run ./bench -package ./bench/broker -col /broker -rounds 3 -benchtime 5000x $(BENCHARGS)

bench-relay: ## Compare the webhook relay with a naive path; quick run: BENCHARGS='-rounds 1 -benchtime 2000x'
	$(GO) run ./bench -package ./bench/relay -col /path -rounds 3 -benchtime 20000x $(BENCHARGS)

bench-relay-sync: ## Measure the settings of sync of the relay, at 64 senders and at one
	$(GO) run ./bench -package ./bench/relay -run Sync -col /sync -rounds 6 -benchtime 5000x $(BENCHARGS)

bench-feed: ## Compare the feed on PostgreSQL and SQLite with River
	$(GO) run ./bench -package ./bench/feed -col /on -rounds 3 -benchtime 100000x $(BENCHARGS)

bench-console: ## Measure the response times of the console's pages, also with 1,000,000 dead letters and failed messages
	$(GO) test ./cmd/jetpull/browser -run '^$$' -bench . -benchtime 200x -timeout 0 $(BENCHARGS)

bench-partition: ## Compare package partition with a plain Consume and pcgroups, in at most 15 minutes
	$(GO) run ./bench -package ./bench/partition -col /side -rounds 3 -benchtime 100000x $(BENCHARGS)

cover: ## Measure the tests' coverage; writes out/cover.html
	@mkdir -p $(OUT)
	$(GO) test -short -timeout 20m -coverpkg=work -coverprofile=$(OUT)/cover.out $(TESTARGS) work
	$(GO) tool cover -html=$(OUT)/cover.out -o $(OUT)/cover.html
	$(GO) tool cover -func=$(OUT)/cover.out | tail -n 1

api: ## Regenerate the golden files of the public API, after an intended change
	$(GO) test ./test -run '^TestAPI$$' -count 1 -update

reference: ## Regenerate docs/configuration.md and the tables of docs/metrics.md from the code
	$(GO) test ./cmd/jetpull -run '^(TestConfigurationPage|TestMetricsPage)$$' -count 1 -update

# sdk/typescript/package.json contains the versions of the tools.
SDKTOOLS = $(OUT)/sdk/node_modules/.bin

sdk: ## Generate the types of the TypeScript client with npm, after an OpenAPI document or the client has changed
	@mkdir -p $(OUT)/sdk && cp sdk/typescript/package.json $(OUT)/sdk
	npm install --prefix $(OUT)/sdk --no-package-lock --no-audit --no-fund --silent
	for system in broker relay; do \
		$(SDKTOOLS)/openapi-typescript --default-non-nullable false $$system/internal/httpapi/openapi.json -o sdk/typescript/types/$$system-api.d.ts; done
	$(SDKTOOLS)/tsc --project sdk/typescript && $(SDKTOOLS)/tsc --project sdk/typescript/test
	sha256sum broker/internal/httpapi/openapi.json relay/internal/httpapi/openapi.json >sdk/documents.sha256

# site/package.json contains the generator's version. SITE_VERSION is the version that the site shows, and SITE_BASE is the path of the site.
site: export SITE_VERSION ?= main
site: export SITE_BASE ?= /
site: ## Build the site of the documents in out/site/dist, with VitePress from npm
	@rm -rf $(OUT)/site/src && mkdir -p $(OUT)/site/src/.vitepress
	cp site/package.json $(OUT)/site && cp site/pages.json $(OUT)/site/src && cp site/config.mjs $(OUT)/site/src/.vitepress/config.mjs
	node -p 'Object.values(require("./site/pages.json")).flat().map(([path]) => path).join("\n")' | xargs cp --parents -t $(OUT)/site/src
	git ls-files -z '*.svg' '*.png' | xargs -0 cp --parents -t $(OUT)/site/src
	npm install --prefix $(OUT)/site --no-package-lock --no-audit --no-fund --silent
	$(OUT)/site/node_modules/.bin/vitepress build $(OUT)/site/src --outDir $(CURDIR)/$(OUT)/site/dist

licenses: ## Write the licence notices of all software in the command
	tools/licenses.sh cmd/jetpull/internal/licenses

vulncheck: $(BIN)/govulncheck ## Run govulncheck in all modules; fails with a message if its database cannot be reached
	@status=0; for module in $(MODULES); do echo "govulncheck: $$module"; $(BIN)/govulncheck -C $$module ./... || status=$$?; done; exit $$status

release-check: ## Install the command, and build a user of each public package, from a module proxy made from the tree
	tools/release.sh check $(VERSION)

release-prepare: tidy vulncheck release-check release-snapshot ## Do all of the release VERSION but the push: check it, commit it on a branch, and tag it
	tools/release.sh commit $(VERSION)

nats-matrix: ## Test pull, pins, partitions and the start of the broker against nats-server 2.11, 2.12, 2.14 and 2.15
	tools/nats-matrix.sh

# The commit of a release has a tag for each module. goreleaser must use this one.
release: $(BIN)/goreleaser $(BIN)/sbom ## Build and publish the release for the tag GITHUB_REF_NAME; the release workflow runs this
	@test -n "$(GITHUB_REF_NAME)" || { echo "make release: GITHUB_REF_NAME is missing: push the tag, and the workflow runs this" >&2; exit 2; }
	GORELEASER_CURRENT_TAG=$(GITHUB_REF_NAME) $(BIN)/goreleaser release --clean

# Images need a Docker engine, and signatures need the identity of a workflow.
release-snapshot: $(BIN)/goreleaser $(BIN)/sbom ## Build all files of a release for VERSION in dist, and install the packages; publishes nothing
	GITHUB_TOKEN= GORELEASER_CURRENT_TAG=$(VERSION) $(BIN)/goreleaser check
	GITHUB_TOKEN= GORELEASER_CURRENT_TAG=$(VERSION) $(BIN)/goreleaser release --snapshot --clean --skip docker,sign,publish
	cd dist && sha256sum --check --quiet SHA256SUMS
	cd tools/packaging && GOWORK=off $(GO) test -count 1 . -dist $(CURDIR)/dist

# Processor time limits ci, and compiling takes much of it. So each package is compiled at most twice: with the race detector for test-race,
# and as a release for everything else. ci does not run build, because linking each program takes longer. The linter includes vet. The tools
# need a separate build, so nightly lints them. Go's cache of test results is not used, because it ignores the programs that tests build and
# run. The fuzz targets of a package run after its tests, in the same program, because linking another one takes longer than 2,000 inputs.
# The parts of test run in sequence. In parallel, tests would exceed their limits on two processors.
ci: export FUZZTIME = 2000x
# The compiler and the linter need a fifth to a third less processor time if they collect garbage less often. Tests use Go's defaults.
prepare ci: export GOGC = 400
prepare ci: export GOMEMLIMIT = 3GiB
ci: export TESTENV = $(if $(RACE),CGO_ENABLED=1 GOFLAGS='$(GOFLAGS) -vet=off $(RACE)',$(PLAIN))
ci: export TESTEXEC = -exec $(CURDIR)/tools/fuzz.sh
ci: export TESTARGS += -count=1
ci: prepare ## Run all checks that a change must pass
	$(PLAIN) $(MAKE) lint-modules
	$(MAKE) -k test test-system

# Downloads mostly wait for the network, and the linter's build for the compiler. To tidy the modules of the tools, go would download all
# imports of the tests of their dependencies. Nobody imports these modules, so nightly tidies them.
prepare: ## Check that the modules of go.work are tidy, and download all modules, while the linter is built
	{ $(MAKE) tidy TIDY='$(MODULES)'; \
		for dir in tools tools/packaging; do GOWORK=off $(GO) list -C $$dir -deps -test ./... >/dev/null; done; } & downloads=$$!; \
		$(MAKE) $(BIN)/golangci-lint; wait $$downloads

$(BIN)/golangci-lint: tools/golangci-lint.sh tools/go.mod tools/go.sum .golangci.yml
	GOWORK=off $(PLAIN) tools/golangci-lint.sh $(BIN)
	@touch $@

$(BIN)/govulncheck: tools/go.mod tools/go.sum
	GOWORK=off $(PLAIN) $(GO) build -C tools -o $(BIN)/ golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(BIN)/goreleaser: tools/packaging/go.mod tools/packaging/go.sum
	GOWORK=off $(PLAIN) $(GO) build -C tools/packaging -o $(BIN)/ github.com/goreleaser/goreleaser/v2
	@touch $@

$(BIN)/sbom: tools/go.mod tools/go.sum $(wildcard tools/sbom/*.go)
	GOWORK=off $(PLAIN) $(GO) build -C tools -o $(BIN)/ ./$(@F)
	@touch $@
