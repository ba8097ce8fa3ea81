# Two commands do all the set-up: `make demo` and `make test`. Nothing has to be
# installed but what README.md names.

SHELL := /bin/bash
GO ?= go
# Of what the compiler and the tests do, collecting garbage is a fifth at Go's own setting.
LAZY := GOGC=$${GOGC:-300}
# What the demo and the tools consist of is compiled one way, so that nothing is
# compiled twice.
STATIC := CGO_ENABLED=0 $(LAZY) $(GO)
# What reads packages as they are compiled has them compiled that way too.
CHECKED := CGO_ENABLED=0 $(LAZY) GOFLAGS="$$($(GO) env GOFLAGS) -trimpath"
BIN := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Without gRPC's pages of traces no template is linked in, and the linker drops the methods
# that nobody calls: a fifth of vdo-operator.
TAGS := grpcnotrace
# Of the images.
PLATFORMS ?= linux/amd64,linux/arm64
TESTFLAGS ?=
# What the tests need besides Go's own test runner: see test/README.md.
TEST_TIMEOUT ?= 65m
# Packages at once: one more than processors, since those that run control planes wait
# more than they work. They go first, so that others use the processors meanwhile.
TEST_PROCS ?= $$(($$(getconf _NPROCESSORS_ONLN) + 1))
# Ninety programs are linked: without what only a debugger reads, a quarter less each. What
# vet says is make verify's.
TEST_BUILD ?= -ldflags=-w -vet=off
SOAK ?= 8h
# Of the others the longest go first, so that none is left alone at the end.
TEST_FIRST := ./operator/internal/controller/vdoconfig ./bundler/internal/cli ./test/e2e ./operator/internal/vdoctl \
	./test/model ./bundler/internal/registry ./operator/internal/model ./operator/internal/controller/sipcluster \
	./operator/internal/controller/driverbundle ./bundler/internal/archive ./deploy

.DEFAULT_GOAL := help

##@ Start

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the main job end to end on this machine (KEEP=1 leaves it running, SIP=1 shows tenant clusters too)
	@echo "building the demo itself: minutes where nothing is compiled yet"; mkdir -p $(BIN)/demo; said="$$($(STATIC) build -trimpath -ldflags '-s -w' -o $(BIN)/demo/demo ./scripts/demo 2>&1)" || { echo "$$said"; exit 1; }
	@exec $(BIN)/demo/demo

##@ Build

.PHONY: build
build: ## Build vdo-bundle, vdo-operator, vdo-jumphost and vdoctl into bin/
	$(STATIC) build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./bundler/cmd/... ./operator/cmd/...

.PHONY: image
image: ## Build the images of operator and jump host as OCI layouts in dist/
	$(STATIC) run -trimpath ./scripts/image -version "$(VERSION)" -platforms "$(PLATFORMS)" -o dist

##@ Test

.PHONY: tools
tools: ## Build the control plane and tools that the tests use (once a machine)
	$(STATIC) run -trimpath ./scripts/toolchain

.PHONY: test
test: ## Run all tests with the race detector (builds its control plane once)
	$(STATIC) run -trimpath ./scripts/toolchain
	$(LAZY) $(GO) test -race $(TEST_BUILD) -timeout $(TEST_TIMEOUT) -p $(TEST_PROCS) $(TESTFLAGS) $(TEST_FIRST) ./...
	@for f in bin/test/skipped*; do if [ -e $$f ]; then echo; cat $$f; fi; done

.PHONY: soak
soak: ## Run random programs of vdo-bundle and of the operator for hours (SOAK=8h, SEED=N draws the same ones)
	$(STATIC) run -trimpath ./scripts/toolchain
	VDO_TEST_DURATION=$(SOAK) $(if $(SEED),VDO_TEST_SEED=$(SEED)) $(GO) test -race -count=1 -timeout 0 -v -run TestRandomPrograms ./test/model ./operator/internal/model

.PHONY: bench
bench: ## Compare vdo-bundle with its peers (VDO_BENCH_SCALE=0.1 for a tenth of the size)
	@$(GO) run ./scripts/bench $(BENCHFLAGS)

.PHONY: microbench
microbench: ## Run the benchmarks of single packages
	$(GO) test -run '^$$' -bench . -benchtime 3x -timeout 60m ./...

##@ Generate and check

.PHONY: lint
lint: ## Run golangci-lint (.golangci.yml), with all that go vet says
	@lint="$$($(STATIC) run -trimpath ./scripts/toolchain golangci-lint)" && $(CHECKED) "$$lint" run ./...

.PHONY: generate
generate: ## Regenerate deep copies and CRDs from api/v1alpha1 and api/airship/v1
	@gen="$$($(STATIC) run -trimpath ./scripts/toolchain controller-gen)" && \
		"$$gen" object paths=./api/v1alpha1 paths=./api/airship/v1 && \
		"$$gen" crd paths=./api/v1alpha1 output:crd:dir=deploy/crds && \
		"$$gen" crd paths=./api/airship/v1 output:crd:dir=deploy/sip/crds

.PHONY: manifests
manifests: ## Generate the CRDs, then check the shipped RBAC against an API server
	@echo "writes deploy/crds, deploy/sip/crds and deep copies; tests deploy/*.yaml on an API server of its own, no other cluster"
	@$(MAKE) --no-print-directory generate
	$(STATIC) test -trimpath -tags $(TAGS) -run 'TestNoRule|TestTheOperator(May|Cannot)' ./deploy

.PHONY: needs
needs: ## List what the matrix's releases need, from upstream's manifests (VDO_UPSTREAM)
	$(GO) run ./scripts/needs

.PHONY: verify
verify: ## Check format, lint, generated files and the architecture
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; fi
	@$(MAKE) --no-print-directory lint
	@before="$$(cat deploy/crds/* deploy/sip/crds/* api/v1alpha1/zz_generated* api/airship/v1/zz_generated* | sha256sum)"; $(MAKE) --no-print-directory generate; \
		after="$$(cat deploy/crds/* deploy/sip/crds/* api/v1alpha1/zz_generated* api/airship/v1/zz_generated* | sha256sum)"; \
		if [ "$$before" != "$$after" ]; then echo "generated files were stale: commit what make generate wrote"; exit 1; fi
	$(CHECKED) $(GO) test -count=1 ./test/architecture ./test/words
	@$(GO) mod tidy -diff >/dev/null || { echo "go.mod is not tidy: run go mod tidy"; exit 1; }

##@ Deploy

INSTALL := deploy/crds/*.yaml $(addprefix deploy/,namespaces.yaml rbac.yaml networkpolicy.yaml operator.yaml)
VDOCTL := $(STATIC) build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./operator/cmd/vdoctl && $(BIN)/vdoctl
UNDEPLOYFLAGS ?= --operator --crds

.PHONY: deploy
deploy: ## Install the operator into the current context (IMG=... or BUNDLE=...; YES=1)
	@case "$(if $(IMG),image)$(if $(BUNDLE),bundle)" in \
	image) set -- --manifests "$$(mktemp)"; trap 'rm -f "$$2"' EXIT; \
		for f in $(INSTALL); do echo ---; cat $$f; done | sed "s|image: vdo-operator$$|image: $(IMG)|" >"$$2" ;; \
	bundle) set -- "$(BUNDLE)" ;; \
	*) echo 'set IMG or BUNDLE, not both: make deploy IMG=registry.example/vdo/operator:v1' >&2; exit 2 ;; \
	esac; $(VDOCTL) deploy "$$@" $(DEPLOYFLAGS) --dry-run && $(BIN)/vdoctl deploy "$$@" $(DEPLOYFLAGS) $(if $(YES),--yes)

.PHONY: undeploy
undeploy: ## Remove the operator and its CRDs (UNDEPLOYFLAGS=--all: drivers too; YES=1)
	@$(VDOCTL) delete $(UNDEPLOYFLAGS) $(if $(YES),--dry-run && $(BIN)/vdoctl delete $(UNDEPLOYFLAGS) --yes)
