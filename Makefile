# Everything a person or CI runs. `make` alone says what there is.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# A cache of its own: the shared one answers with the paths of whichever clone it saw the same files in first.
LINT    := GOLANGCI_LINT_CACHE=$(CURDIR)/.cache/golangci-lint $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2
STRESS  ?= 200
FUZZTIME ?= 60s
BENCH_ARGS ?=
# The torture, and its worker as one of the next release, which shares the group with those of this one.
TORTURE  = $(GO) build -o bin/torture ./test/torture/cmd/torture && $(GO) build -tags next_release -o bin/torture-next ./test/torture/cmd/torture
# What the torture is given; see CONTRIBUTING.md.
export TORTURE_SEED TORTURE_SEEDS TORTURE_MINUTES TORTURE_SECONDS TORTURE_ATTACKS TORTURE_SHARE TORTURE_PROTOCOL TORTURE_RATE TORTURE_KEEP

.DEFAULT_GOAL := help
.PHONY: help build test test-kafka torture torture-ci demo bench bench-kafka stress fuzz lint fmt generate verify clean

help: ## Say what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/worker
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/worker ./cmd/worker

torture: ## Attack workers on three brokers of Apache Kafka for TORTURE_MINUTES (10); TORTURE_SEED and TORTURE_ATTACKS choose how
	$(TORTURE)
	bin/torture

torture-ci: ## 90 seconds of it with fixed seeds, each with a third of the attacks, on one cluster
	$(TORTURE)
	TORTURE_SEEDS=1,2,3 TORTURE_SECONDS=30 TORTURE_SHARE=1 TORTURE_PROTOCOL=both bin/torture

demo: ## Run the main job on a broker of its own, kill the worker in the middle of a refund, and show that all promises held
	$(GO) run ./cmd/worker demo

test: ## Run every test that needs no broker, under the race detector
	$(GO) test -race ./...

test-kafka: ## Run the tests against Apache Kafka, which they bring and start (Java 17 and Maven needed); LATHE_TEST_BROKERS uses a running one
	LATHE_TEST_REFUSAL=$${LATHE_TEST_REFUSAL:-1m} $(GO) test -tags kafka -p 1 -count 1 -timeout 30m ./internal/kafka ./internal/consumer/... ./test/...

bench: ## Measure turns/s and latency beside the floor, on the embedded broker; BENCH_ARGS are passed on ("restore": restoring)
	$(GO) build -o bin/worker ./cmd/worker
	bin/worker bench $(BENCH_ARGS)

bench-kafka: ## The same on an Apache Kafka that it starts and warms up for 20 s; BENCH_ARGS are passed on
	$(GO) build -o bin/worker ./cmd/worker
	$(GO) run ./test/kafka/cmd/kafkaup -warm 20s bin/worker bench $(BENCH_ARGS)

stress: ## Run one test many times under the race detector: make stress PKG=./internal/turn NEW=TestX
	$(GO) test -race -count $(STRESS) -run '$(NEW)' $(PKG)

fuzz: ## Fuzz every decoder for FUZZTIME each
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep ^Fuzz); do \
	    echo "fuzz $$pkg $$f"; $(GO) test -run XXX -fuzz "^$$f$$" -fuzzminimizetime 1s -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done

lint: ## Run the linters
	$(LINT) run ./...

fmt: ## Format the code
	$(LINT) fmt ./...

generate: ## Rewrite generated docs
	$(GO) test ./schemas ./internal/app -run 'Docs|Drift|Doc' -update

verify: ## Check that module files and formatting are in order
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) vet -tags kafka ./...

clean: ## Remove what was built and downloaded
	rm -rf bin dist .cache .kafka
