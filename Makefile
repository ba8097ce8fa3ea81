# Two commands do all the set-up: `make demo` and `make test`. Nothing has to be
# installed but what README.md names.

SHELL := /bin/bash
GO ?= go
# Collecting garbage is a fifth of what compiler and tests do at Go's own setting.
LAZY := GOGC=$${GOGC:-300}
# Without gRPC's trace pages the linker can drop a fifth of vdo-operator.
TAGS := grpcnotrace
# One set of flags for programs, demo, tests and linter, so that one compile cache serves all.
BUILD := -trimpath -tags $(TAGS)
STATIC := CGO_ENABLED=0 $(LAZY) $(GO)
CHECKED := CGO_ENABLED=0 $(LAZY) GOFLAGS="$$($(GO) env GOFLAGS) -trimpath -tags=$(TAGS)"
BIN := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
PLATFORMS ?= linux/amd64,linux/arm64
# Packages of tests to run, such as ./operator/internal/render; by default all.
PKG ?=
# MEASURE=1 runs every test again and compares what it takes with test/budget.tsv.
TESTFLAGS ?=
RUNNER := $(STATIC) build $(BUILD) -buildvcs=false -o $(BIN)/testrun ./scripts/test && $(LAZY) $(BIN)/testrun
RUNFLAGS := $(if $(MEASURE),-measure) $(if $(STRICT),-strict) $(if $(TESTFLAGS),-flags "$(TESTFLAGS)") $(PKG)
SOAK ?= 8h

.DEFAULT_GOAL := help

##@ Start

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the main job end to end on this machine (KEEP=1 leaves it running, SIP=1 shows tenant clusters too)
	@echo "building the demo itself: minutes where nothing is compiled yet"; mkdir -p $(BIN)/demo; said="$$($(STATIC) build $(BUILD) -buildvcs=false -ldflags '-s -w' -o $(BIN)/demo/demo ./scripts/demo 2>&1)" || { echo "$$said"; exit 1; }
	@exec $(BIN)/demo/demo

##@ Build

IMAGE = $(STATIC) run $(BUILD) ./scripts/image -version "$(VERSION)" -platforms "$(PLATFORMS)" -o dist

.PHONY: build
build: ## Build vdo-bundle, vdo-operator, vdo-jumphost and vdoctl into bin/
	$(STATIC) build $(BUILD) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./bundler/cmd/... ./operator/cmd/...

.PHONY: image
image: ## Build the operator's image as an OCI layout in dist/
	$(IMAGE) -program vdo-operator

.PHONY: image-jumphost
image-jumphost: ## Build the jump host's image in dist/, from a Debian archive (DEBIAN=URL: another one)
	$(IMAGE) -program vdo-jumphost $(DEBIAN:%=-debian %)

##@ Test

.PHONY: test
test: ## Run the first tier of tests (PKG=./path for one package, MEASURE=1 against the budget)
	@$(RUNNER) $(RUNFLAGS)

.PHONY: race
race: ## Run the packages with goroutines of their own under the race detector
	@$(RUNNER) -tier race $(RUNFLAGS)

.PHONY: test-peers
test-peers: ## Run the tests that need other programs: Debian packages, cosign, crane, regctl, Dex
	@$(RUNNER) -tier peers $(RUNFLAGS)

.PHONY: test-upstream
test-upstream: ## Run the tests about upstream's manifests (VDO_UPSTREAM=DIR)
	@test -n "$(VDO_UPSTREAM)" || { echo 'set VDO_UPSTREAM to a directory of upstream manifests: DRIVER/vVERSION/FILE and RELEASES.tsv (test/README.md)' >&2; exit 2; }
	@$(RUNNER) -tier upstream $(RUNFLAGS)

.PHONY: test-all
test-all: ## Run every test with the race detector: an hour and more (VDO_UPSTREAM=DIR)
	@$(RUNNER) -tier all $(RUNFLAGS)

.PHONY: budget
budget: ## Show what the last measured tests took against test/budget.tsv
	@$(RUNNER) budget

.PHONY: budget-update
budget-update: ## Write the measured figures and today's lines into test/budget.tsv
	@$(RUNNER) budget-update

.PHONY: tools
tools: ## Build the control plane that the first tier of tests uses (once a machine)
	$(STATIC) run $(BUILD) ./scripts/toolchain

.PHONY: soak
soak: ## Run random programs of vdo-bundle and of the operator for hours (SOAK=8h, SEED=N draws the same ones)
	$(STATIC) run $(BUILD) ./scripts/toolchain
	VDO_TEST_TIER=all,peers VDO_TEST_DURATION=$(SOAK) $(if $(SEED),VDO_TEST_SEED=$(SEED)) $(GO) test -race -count=1 -timeout 0 -v -run 'TestRandomPrograms|TestKilledAfterWrites' ./test/model ./operator/internal/model

.PHONY: bench
bench: ## Compare vdo-bundle with its peers (BENCHFLAGS="-scale 0.1" for a tenth of the size)
	@$(STATIC) run $(BUILD) ./scripts/bench $(BENCHFLAGS)

.PHONY: microbench
microbench: ## Run the benchmarks of single packages
	$(STATIC) test $(BUILD) -run '^$$' -bench . -benchtime 3x -timeout 60m ./...

##@ Generate and check

.PHONY: lint
lint: ## Run golangci-lint (.golangci.yml), with all that go vet says
	@lint="$$($(STATIC) run $(BUILD) ./scripts/toolchain golangci-lint)" && $(CHECKED) "$$lint" run ./...

GENERATED := deploy/crds/* deploy/sip/crds/* api/v1alpha1/zz_generated* api/airship/v1/zz_generated* operator/docs/reference/* bundler/docs/reference.md

.PHONY: generate
generate: ## Regenerate deep copies, CRDs and the reference pages
	@gen="$$($(STATIC) run $(BUILD) ./scripts/toolchain controller-gen)" && \
		"$$gen" object paths=./api/v1alpha1 paths=./api/airship/v1 && \
		"$$gen" crd paths=./api/v1alpha1 output:crd:dir=deploy/crds && \
		"$$gen" crd paths=./api/airship/v1 output:crd:dir=deploy/sip/crds
	@$(STATIC) run $(BUILD) ./scripts/reference
	@UPDATE=1 $(STATIC) test $(BUILD) -run TestHelpOf ./bundler/internal/cli ./operator/internal/vdoctl >/dev/null

.PHONY: manifests
manifests: ## Generate the CRDs, then check the shipped RBAC against an API server
	@echo "writes deploy/crds, deploy/sip/crds and deep copies; tests deploy/*.yaml on an API server of its own, no other cluster"
	@$(MAKE) --no-print-directory generate
	$(STATIC) test $(BUILD) -run 'TestNoRule|TestTheOperator' ./deploy

.PHONY: needs
needs: ## List what the matrix's releases need, from upstream's manifests (VDO_UPSTREAM)
	$(STATIC) run $(BUILD) ./scripts/needs

.PHONY: verify
verify: ## Check format, lint, generated files, architecture, words and the budget
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; fi
	@$(MAKE) --no-print-directory lint
	@before="$$(cat $(GENERATED) | sha256sum)"; $(MAKE) --no-print-directory generate || exit 1; \
		after="$$(cat $(GENERATED) | sha256sum)"; \
		if [ "$$before" != "$$after" ]; then echo "generated files were stale: commit what make generate wrote"; exit 1; fi
	$(CHECKED) $(GO) test -count=1 ./test/architecture ./test/words
	@$(RUNNER) check
	@$(GO) mod tidy -diff >/dev/null || { echo "go.mod is not tidy: run go mod tidy"; exit 1; }

##@ Deploy

INSTALL := deploy/crds/*.yaml $(addprefix deploy/,namespaces.yaml rbac.yaml networkpolicy.yaml operator.yaml)
VDOCTL := $(STATIC) build $(BUILD) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./operator/cmd/vdoctl && $(BIN)/vdoctl
UNDEPLOYFLAGS ?= --operator --crds

.PHONY: deploy
deploy: ## Install the operator into the current context (IMG=... or BUNDLE=...; YES=1)
	@case "$(if $(IMG),image)$(if $(BUNDLE),bundle)" in \
	image) set -- --manifests "$$(mktemp)"; trap 'rm -f "$$2"' EXIT; \
		for f in $(INSTALL); do echo ---; cat $$f; done | sed "s|image: vdo-operator$$|image: $(IMG)|" >"$$2" ;; \
	bundle) set -- "$(BUNDLE)" ;; \
	*) echo 'set IMG or BUNDLE, one of them: make deploy IMG=registry.example/vdo/operator:v1' >&2; exit 2 ;; \
	esac; $(VDOCTL) deploy "$$@" $(DEPLOYFLAGS) --dry-run && $(BIN)/vdoctl deploy "$$@" $(DEPLOYFLAGS) $(if $(YES),--yes)

.PHONY: undeploy
undeploy: ## Remove the operator and its CRDs (UNDEPLOYFLAGS=--all: drivers too; YES=1)
	@$(VDOCTL) delete $(UNDEPLOYFLAGS) $(if $(YES),--dry-run && $(BIN)/vdoctl delete $(UNDEPLOYFLAGS) --yes)
