SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-relay demo-feed demo-partition demo-console screenshots console-assets build test tidy lint fuzz examples sim sim-planted soak nightly bench bench-against bench-broker bench-relay bench-feed bench-console bench-partition cover api licenses release release-snapshot release-check nats-matrix nightly-release nightly-simulation nightly-tests vulncheck ci

GO       ?= go
BIN      := $(CURDIR)/bin
OUT      := out
TESTARGS ?=
BENCHARGS ?=
REV      ?=
VERSION  ?= v0.1.0
# In inputs: with a time Go's fuzzing can end in its own deadline and fail.
export FUZZTIME ?= 20000x
SEED     ?=
COUNT    ?= 2000
DURATION ?= 2m

# The modules that go.work names, each a folder.
MODULES := $(shell sed -n 's/^\t\.\/\{0,1\}/.\//p' go.work)
# The modules whose go.mod and go.sum must be tidy.
TIDY    ?= $(MODULES) ./tools ./tools/packaging
# Our own packages in tools, which is no module of go.work.
TOOLS   := ./apidoc ./deploylint ./licenses ./release ./sbom ./vulncheck
# The race detector needs a C compiler. Where it finds nothing a test sleeps for a second at its end, unless GORACE says otherwise.
RACE    := $(if $(shell command -v $$($(GO) env CC)),-race)
export GORACE ?= atexit_sleep_ms=0
# What is built without the race detector is built as a release is, so that the programs of one run share one build.
PLAIN   := CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false -vet=off'
# Packages whose tests run at a time, one more than processors: many wait more than they compute. The longest begin first.
PACKAGES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
LONGEST  := ./console/test ./feed ./test ./relay ./broker ./cmd/jetpull ./broker/internal/journal . ./broker/internal/httpapi ./test/partition ./test/security ./test/model ./partition

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Work off a real backlog on an embedded server, from start to end
	$(GO) run ./examples/demo

demo-relay: ## Send 10,000 events of three sources through a relay to four receivers; a chart in out/demo-relay.svg
	$(GO) run ./examples/demo-relay

demo-feed: ## Rank 500 résumés with two watchers, of which one is killed; a chart in out/demo-feed.svg
	$(GO) run ./examples/demo-feed

demo-partition: ## Keep the orders of 40 customers in order over three processes, of which one is killed; a chart in out/demo-partition.svg
	$(GO) run ./examples/demo-partition

demo-console: ## Serve the console with work behind it, of which some fails, on 127.0.0.1:8222
	$(GO) run ./console/test/demo

screenshots: ## Write the pictures of the console in docs/console with Debian's chromium, from the work of demo-console
	@mkdir -p docs/console
	SCREENSHOTS=$(CURDIR)/docs/console $(GO) test ./console/test -run '^TestScreenshots$$' -count 1

console-assets: ## Fetch the console's files of others from npm at the versions of console/thirdparty.sh, and check their sums
	console/thirdparty.sh

build: ## Compile every package of every module
	$(GO) build work

# What is weighed means nothing under the race detector, and the relay's simulation and the scenarios beside it take eight times as long there.
test: ## Run the tests of all modules, under the race detector where there is a C compiler
	CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(RACE) -p $(PACKAGES) -short -timeout 30m $(TESTARGS) $(TESTEXEC) \
		$(LONGEST) $$($(GO) list work | grep -v '/relay/internal/sim$$')
	CGO_ENABLED=$(if $(RACE),1,0) $(GO) test $(RACE) -run '^TestSimulation$$' -short $(TESTARGS) ./relay/internal/sim
	$(PLAIN) $(GO) test $(TESTARGS) ./relay/internal/sim -sim.seed 1 -sim.count 200
	$(PLAIN) $(GO) test -run '^(TestMemoryAfterTraffic|TestRetentionLevelsOff)$$' $(TESTARGS) ./test ./broker
	cd tools && GOWORK=off $(PLAIN) $(GO) test -count 1 $(TOOLS)
	cd tools/packaging && GOWORK=off $(PLAIN) $(GO) test -count 1 ./...

tidy: ## Fail where a module's go.mod or go.sum is not tidy
	@printf '%s\n' $(TIDY) | xargs -P 4 -I MODULE bash -c \
		'cd MODULE && difference=$$(GOWORK=off $(GO) mod tidy -diff) || { echo "go mod tidy -diff: MODULE"; echo "$$difference"; exit 1; }'

# It runs vet too.
lint: $(BIN)/golangci-lint ## Run golangci-lint, at the version that tools/go.mod pins
	$(BIN)/golangci-lint run $(addsuffix /...,$(MODULES))
	cd tools && GOWORK=off $(PLAIN) $(BIN)/golangci-lint run --config ../.golangci.yml $(addsuffix /...,$(TOOLS))

# With -fuzz the build has what lets coverage guide the fuzzing.
fuzz: ## Run every fuzz target for FUZZTIME (20000x, that many inputs) each
	@grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u | while read -r dir; do \
		$(GO) test -c -fuzz . -ldflags '-s -w' -o $(CURDIR)/$(OUT)/fuzz/test "$$dir"; \
		(cd "$$dir" && $(CURDIR)/tools/fuzz.sh $(CURDIR)/$(OUT)/fuzz/test -test.run '^$$'); \
	done

examples: ## Run the tests of the examples
	$(GO) test -timeout 10m $(TESTARGS) ./examples/...

sim: ## Simulate COUNT schedules within DURATION, from SEED (drawn and printed unless set)
	$(GO) test ./test/sim -v -run '^TestSimulation$$' -count 1 -timeout 0 $(TESTARGS) \
		-sim.count=$(COUNT) -sim.duration=$(DURATION) $(if $(SEED),-sim.seed=$(SEED))

sim-planted: ## Plant bugs in the client: the simulation finds each within 200 seeds
	$(GO) test ./test/sim -v -run '^TestPlantedBugs$$' -count 1 -timeout 0 $(TESTARGS) -sim.planted

soak: ## Work a broker through 24 accelerated hours with retention: memory and store level off
	$(GO) test ./broker -v -run '^TestRetentionLevelsOff$$' -count 1 -timeout 0 $(TESTARGS) -broker.day

nightly: nightly-release nightly-simulation nightly-tests ## What takes too long for ci: see CONTRIBUTING.md

nightly-release: tidy build $(BIN)/vulncheck $(BIN)/govulncheck release-check release-snapshot nats-matrix ## The part of nightly that is about releases
	$(VULNCHECK) || test $$? = 4

nightly-simulation: COUNT = 100000
nightly-simulation: DURATION = 4h
nightly-simulation: sim-planted sim soak ## The part of nightly that simulates
	$(GO) test ./feed -v -run '^(TestSimulation|TestPlantedBugs)$$' -count 1 -timeout 0 $(TESTARGS) -feed.count=50000 -feed.planted=true
	$(GO) test ./relay/internal/sim -v -timeout 0 -count 1 $(TESTARGS) -sim.count 20000 -sim.planted
	$(GO) test ./partition -v -run '^TestSimulation$$' -timeout 0 -count 1 $(TESTARGS) -partition.count 20000

nightly-tests: FUZZTIME = 2000000x
nightly-tests: fuzz ## The part of nightly that runs all tests at length
	$(GO) test $(RACE) -timeout 2h -count 1 -skip '^(TestMemoryAfterTraffic|TestRetentionLevelsOff)$$' $(TESTARGS) work
	$(GO) test ./test/partition -v -timeout 0 -count 1 $(TESTARGS) -partition.messages 200000 -partition.partitions 64 -partition.faults 104

bench: ## Measure the client against nats.go; figures and a chart in out/bench
	$(GO) run ./bench $(BENCHARGS)

bench-against: ## Measure the client against that of REV, a revision or a checkout's folder, in turn
	@test -n "$(REV)" || { echo "make bench-against: REV is missing: REV=main, or REV=../other" >&2; exit 2; }
	$(GO) run ./bench -against $(REV) $(BENCHARGS)

bench-broker: ## Measure the webhook broker under load, and beside a running one whose address is JETPULL_BENCH_BESIDE
	$(GO) run ./bench -package ./bench/broker -col /broker -rounds 3 -benchtime 5000x $(BENCHARGS)

bench-relay: ## Measure the webhook relay beside a naive path; quickly with BENCHARGS='-rounds 1 -benchtime 2000x'
	$(GO) run ./bench -package ./bench/relay -col /path -rounds 3 -benchtime 20000x $(BENCHARGS)

bench-feed: ## Measure the feed on PostgreSQL and SQLite, beside River
	$(GO) run ./bench -package ./feed/internal/bench -col /on -rounds 3 -benchtime 100000x $(BENCHARGS)

bench-console: ## Measure how long the console's pages take, also with 1,000,000 dead letters and failed messages
	$(GO) test ./console/test -run '^$$' -bench . -benchtime 200x -timeout 0 $(BENCHARGS)

bench-partition: ## Measure package partition beside a plain Consume and orbit.go's pcgroups
	$(GO) run ./bench -package ./bench/partition -col /side -rounds 3 -benchtime 100000x -run 'OneMember|Fleet|Idle' $(BENCHARGS)
	$(GO) run ./bench -package ./bench/partition -col /after -rounds 1 -benchtime 5x -run WithoutOwner -out $(OUT)/bench/owner $(BENCHARGS)

cover: ## Measure the tests' coverage; a page in out/cover.html
	@mkdir -p $(OUT)
	$(GO) test -short -timeout 20m -coverpkg=work -coverprofile=$(OUT)/cover.out $(TESTARGS) work
	$(GO) tool cover -html=$(OUT)/cover.out -o $(OUT)/cover.html
	$(GO) tool cover -func=$(OUT)/cover.out | tail -n 1

api: ## Write the public API's golden files anew, after a change that was meant
	$(GO) test ./test -run '^TestAPI$$' -count 1 -update

licenses: $(BIN)/licenses ## Write the licence notices of everything that the command holds
	$(BIN)/licenses

# It ends with 4 where the database of vulnerabilities cannot be reached, and says so in its last line. That does not fail a nightly run.
VULNCHECK = $(BIN)/vulncheck -govulncheck $(BIN)/govulncheck $(MODULES)

vulncheck: $(BIN)/vulncheck $(BIN)/govulncheck ## Run govulncheck in all modules; fails, and says so, where its database cannot be reached
	$(VULNCHECK)

release-check: $(BIN)/release ## Install the command, and build a user of each public package, from a module proxy that is made of the tree
	$(BIN)/release -version $(VERSION) check

nats-matrix: ## Test pull, pins and the start of the broker against nats-server 2.11, 2.12, 2.14 and 2.15
	tools/nats-matrix.sh

# At the first commit of a release all modules have a tag: goreleaser must not choose another.
release: $(BIN)/goreleaser $(BIN)/sbom ## Build and publish the release of the tag GITHUB_REF_NAME: the release workflow does this
	@test -n "$(GITHUB_REF_NAME)" || { echo "make release: GITHUB_REF_NAME is missing: push the tag, and the workflow runs this" >&2; exit 2; }
	GORELEASER_CURRENT_TAG=$(GITHUB_REF_NAME) $(BIN)/goreleaser release --clean

# An image needs a Docker engine, and a signature the identity of a workflow.
release-snapshot: $(BIN)/goreleaser $(BIN)/sbom ## Build all files of a release in dist, for VERSION, and install the packages; publish nothing
	GITHUB_TOKEN= GORELEASER_CURRENT_TAG=$(VERSION) $(BIN)/goreleaser check
	GITHUB_TOKEN= GORELEASER_CURRENT_TAG=$(VERSION) $(BIN)/goreleaser release --snapshot --clean --skip docker,sign,publish
	cd dist && sha256sum --check --quiet SHA256SUMS
	cd tools/packaging && GOWORK=off $(GO) test -count 1 . -dist $(CURDIR)/dist

# What fails fast comes first. Without build: the linter compiles all that is imported and
# checks the types of the rest, and to link each program takes longer than that. To compile takes longer than all tests, so
# the linter, the tests and the commands that tests run share one build of each package, with the race detector. The linter has vet's checks.
# No result comes from go's cache, which does not see the programs that tests build and run. A package's fuzz targets
# run after its tests, from the same program: to link another takes longer than 5,000 inputs.
ci: FUZZTIME = 5000x
# To tidy the modules of the tools, go downloads all that the tests of their dependencies import. Nobody imports these modules, so nightly does it.
ci: TIDY = $(MODULES)
ci: TESTEXEC = -exec $(CURDIR)/tools/fuzz.sh
ci: export GOFLAGS := $(GOFLAGS) $(RACE) -vet=off
ci: export CGO_ENABLED = $(if $(RACE),1,0)
ci: TESTARGS += -count=1
ci: tidy lint test ## Run all that a change must pass

$(BIN)/golangci-lint $(BIN)/govulncheck: tools/go.mod tools/go.sum
	GOWORK=off $(PLAIN) $(GO) build -C tools -o $(BIN)/ $$(sed -nE 's,^\t([^ ]+/$(@F))$$,\1,p' tools/go.mod)
	@touch $@

$(BIN)/goreleaser: tools/packaging/go.mod tools/packaging/go.sum
	GOWORK=off $(PLAIN) $(GO) build -C tools/packaging -o $(BIN)/ github.com/goreleaser/goreleaser/v2
	@touch $@

$(BIN)/release $(BIN)/vulncheck $(BIN)/licenses $(BIN)/sbom: tools/go.mod tools/go.sum $(wildcard tools/release/*.go tools/vulncheck/*.go tools/licenses/*.go tools/sbom/*.go)
	GOWORK=off $(PLAIN) $(GO) build -C tools -o $(BIN)/ ./$(@F)
	@touch $@
