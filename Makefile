SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo build test race lint vet fuzz examples sim sim-planted nightly bench bench-against bench-broker cover api ci

GO       ?= go
BIN      := $(CURDIR)/bin
OUT      := out
TESTARGS ?=
BENCHARGS ?=
REV      ?=
# In inputs: with a time Go's fuzzing can end in its own deadline and fail.
FUZZTIME ?= 20000x
SEED     ?=
COUNT    ?= 2000
DURATION ?= 2m

# The simulation is part of ci where the tree has it.
CI_SIM := $(if $(wildcard test/sim/*_test.go),sim)

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Work off a real backlog on an embedded server, from start to end
	$(GO) run ./examples/demo

build: ## Compile every package
	$(GO) build ./...

test: ## Run all tests
	$(GO) test -timeout 20m $(TESTARGS) ./...

race: ## Run all tests under the race detector
	$(GO) test -race -timeout 30m $(TESTARGS) ./...

lint: $(BIN)/golangci-lint ## Run golangci-lint, at the version that tools/go.mod pins
	$(BIN)/golangci-lint run ./...

vet: ## Run go vet
	$(GO) vet ./...

fuzz: ## Run every fuzz target for FUZZTIME (20000x, that many inputs) each
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do \
		echo "$${file%/*} $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$${file%/*}" </dev/null; \
	done

examples: ## Run the tests of the examples
	$(GO) test -timeout 10m $(TESTARGS) ./examples/...

sim: ## Simulate COUNT schedules within DURATION, from SEED (drawn and printed unless set)
	$(GO) test ./test/sim -v -run '^TestSimulation$$' -count 1 -timeout 0 $(TESTARGS) \
		-sim.count=$(COUNT) -sim.duration=$(DURATION) $(if $(SEED),-sim.seed=$(SEED))

sim-planted: ## Plant bugs in the client: the simulation finds each within 200 seeds
	$(GO) test ./test/sim -v -run '^TestPlantedBugs$$' -count 1 -timeout 0 $(TESTARGS) -sim.planted

nightly: COUNT = 100000
nightly: DURATION = 4h
nightly: sim-planted sim ## What takes too long for ci: planted bugs, 100,000 schedules

bench: ## Measure the client against nats.go; a table and a chart in out/bench
	$(GO) run ./test/bench $(BENCHARGS)

bench-against: ## Measure the client against that of REV, a revision or a checkout's folder, in turn
	@test -n "$(REV)" || { echo "make bench-against: REV is missing: REV=main, or REV=../other" >&2; exit 2; }
	$(GO) run ./test/bench -against $(REV) $(BENCHARGS)

bench-broker: ## Measure the webhook broker under load
	$(GO) run ./test/benchbroker $(BENCHARGS)

cover: ## Measure the tests' coverage; a page in out/cover.html
	@mkdir -p $(OUT)
	$(GO) test -timeout 20m -coverpkg=./... -coverprofile=$(OUT)/cover.out $(TESTARGS) ./...
	$(GO) tool cover -html=$(OUT)/cover.out -o $(OUT)/cover.html
	$(GO) tool cover -func=$(OUT)/cover.out | tail -n 1

api: ## Write the public API's golden files anew, after a change that was meant
	$(GO) test ./test -run '^TestAPI$$' -count 1 -update

# What fails fast comes first. The examples come last: they need all the rest.
# One package at a time, because many tests run a cluster in their process and
# would wait for each other on two cores.
ci: TESTARGS += -p 1
# The same schedules each time; nightly draws others.
ci: SEED = 20000
ci: COUNT = 500
ci: build vet test lint race fuzz $(CI_SIM) examples ## Run all that a change must pass

$(BIN)/golangci-lint $(BIN)/benchstat &: tools/go.mod tools/go.sum
	@mkdir -p $(BIN)
	$(GO) build -C tools -o $(BIN)/ tool
	@touch $(BIN)/golangci-lint $(BIN)/benchstat
