# SPDX-License-Identifier: Apache-2.0
# Make is the one door: people and CI use the same targets. Everything it builds lands in bin, or in Go's own caches.

.DEFAULT_GOAL := help

BIN       := $(CURDIR)/bin
TOOLS     := $(BIN)/tools
IMAGE     ?= tandem
TAG       ?=
FUZZTIME  ?= 30s
BENCH     ?= .
COUNT     ?= 6
BENCHTIME ?= 50ms
OUTPUT    ?= table
ADMISSIONS ?= 10000
FAULTS     ?= 1000
SEQUENCES  ?= 10000
VERDICTS   ?= 100000
LOAD       ?= 1m
RESTARTS   ?= 10000
BUSYBOX   ?= /bin/busybox
GIVEN_SEED := $(SEED)
SEED      ?= 1
MUTANTS   ?= .
MUTATIONS ?= 2000
PACKAGES  ?= .
AGAINST   ?=
UPDATE    ?=
NAMES     ?= ^structs

# Go stamps the version from git into the binaries (go version -m), where git can tell it.
STAMP     := $(if $(shell git rev-parse --verify HEAD 2>/dev/null),true,false)
PROGRESS  := "$(CURDIR)/test/tools/progress.sh"
KUBELET   := the kubelet's code takes minutes to compile the first time, seconds after that

# The modules: those with code of ours, and those that pin programs of others; the first lines of a go.mod say why it is a module of its own. KUBE36 builds one with Kubernetes 1.36, and KUBE35
# test/kubernetes/dra with the allocator of 1.35.
MODULES := . cmd/tandem-scheduler deployments/release test/kubernetes test/others
PINS    := test/descheduler test/kubernetes/controlplane/etcd test/kubernetes/controlplane/nrtmatch test/tools test/vm/kubernetes
KUBE36  := -modfile=go.v1.36.mod -tags=kubernetes136
KUBE35  := -modfile=go.v1.35.mod -tags=kubernetes135

export GOLANGCI_LINT_CACHE := $(BIN)/cache/golangci-lint

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s:\n", substr($$0, 5) } /^[a-z0-9.-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

# NVIDIA's library is opened at run time, so tandem-gpu and tandem-dra need a C compiler and are linked to the C library. What that library lacks is
# not called, hence lazy, which the compilers of some distributions (Ubuntu's) have to be told, for tests too. Without a compiler it is
# built as the others are, and without NVIDIA.
CC_FOUND  := $(shell command -v $(CC) >/dev/null && echo 1 || echo 0)
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations

# Neither programs nor tests have a debugger's data: stack traces do not need it, nodes pull the image, and the linker takes a third less.
# Both are compiled without the paths of this machine, so that they share what is compiled.
override export GOFLAGS := $(GOFLAGS) -trimpath '-ldflags=-s -w -extldflags=-Wl,-z,lazy'

# Without gRPC's request tracing, which nobody looks at here, the linker can leave out a sixth of the code.
TAGS      := grpcnotrace

##@ Build

.PHONY: build
build: ## Build tandem (also as kubectl-tandem), tandem-lab, tandem-gpu, tandem-rdma, tandem-dra and config-manager into bin
	CGO_ENABLED=0 go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/ ./cmd/tandem ./cmd/tandem-lab ./cmd/tandem-rdma ./cmd/config-manager
	ln -sf tandem $(BIN)/kubectl-tandem
	CGO_ENABLED=$(CC_FOUND) go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/ ./cmd/tandem-gpu ./cmd/tandem-dra

# The scheduler of Kubernetes 1.37, or of 1.36 with SCHEDULER=1.36.3. None serves an API server of a version before its own: that one does
# not let it list what is new.
SCHEDULER ?= 1.37.1
SCHEDULER_MOD = $(if $(filter 1.36.%,$(SCHEDULER)),$(KUBE36))
SCHEDULER_BUILD = cd cmd/tandem-scheduler && CGO_ENABLED=0 $(PROGRESS) "build tandem-scheduler; it takes minutes the first time" \
	go build -buildvcs=$(STAMP) -ldflags='-s -w -X k8s.io/component-base/version.gitVersion=v$(1)'

.PHONY: tandem-scheduler
tandem-scheduler: ## Build tandem-scheduler into bin: kube-scheduler SCHEDULER (1.37.1 or 1.36.3) with the plugin
	$(call SCHEDULER_BUILD,$(SCHEDULER)) $(SCHEDULER_MOD) -o $(BIN)/ .

.PHONY: nvml
nvml: $(BIN)/nvml/libnvidia-ml.so.1 ## Build the stand-in for NVIDIA's library that tests use

# Two tests may build it at the same time: whoever is last puts the same file in place.
$(BIN)/nvml/libnvidia-ml.so.1: test/nvml/library/nvml.c go.mod
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -DNVML_NO_UNVERSIONED_FUNC_DEFS -O2 -g -Wall -Wextra -Werror -Wno-sign-compare -fPIC -shared -pthread \
		-I$$(go list -f '{{.Dir}}' github.com/NVIDIA/go-nvml/pkg/nvml) -Wl,-soname,$(@F) -o $@.$$$$ $< && mv $@.$$$$ $@

# The parts of "make check", which may run on several machines. Random tests have the full number of cases here.
CHECKS := check-own check-release check-others check-dra check-scheduler check-kubelet check-kubelet36

# Tests lay machines out as thousands of small files, in memory where there is room. That is looked up once, by the first target that asks.
GIVEN_TMPDIR := $(TMPDIR)
MEMORY = $(eval MEMORY := $(shell test/tools/tmpdir.sh))$(MEMORY)
test race simulate-faults load mutants mutate chaos $(CHECKS): export TMPDIR = $(or $(GIVEN_TMPDIR),$(MEMORY))

# Compilers and tests allocate much and keep little: by default the garbage collector has a quarter of their time. With the race
# detector a process has several times the memory.
test: export GOGC = off
test: export GOMEMLIMIT = 700MiB
check-own: export GOGC = 400

# Packages at a time: many tests wait.
WAITING = $$((2 * $$(nproc)))

##@ Tests of a change

.PHONY: test
test: ## Run the root module's tests: the built daemons with a fake kubelet, a tenth of the random cases
	$(PROGRESS) "the first run compiles dependencies; packages are printed in order, so that a slow one holds back those behind it" \
		go test -short -vet=off -tags $(TAGS) -p $(WAITING) -timeout 20m ./... # make lint vets

.PHONY: check
check: $(CHECKS) ## Run the tests that make test shortens or omits: the check-* targets in sequence

.PHONY: check-own
check-own: ## Run all tests of the root module, and those of make test with the race detector
	$(PROGRESS) "own packages, all random cases" go test -vet=off -tags $(TAGS) -p $(WAITING) -timeout 60m ./...
	$(PROGRESS) "own packages with the race detector" go test -race -short -vet=off -tags $(TAGS) -p $(WAITING) -timeout 60m ./...

.PHONY: check-release
# The tests of other modules have -count=1: go test caches a result without regard to files outside the module, such as the chart, the
# manifests and the documents.
check-release: ## Run the tests of image and release
	cd deployments/release && $(PROGRESS) "deployments/release; the image is started in pods of many operators" go test -count=1 -timeout 30m ./...

.PHONY: check-others
check-others: ## Run the tests with third-party programs: Helm, kustomize, the schemas of Kubernetes, other allocators, Chromium if installed
	cd test/others && $(PROGRESS) "test/others; Helm takes minutes to compile the first time" go test -count=1 ./...

.PHONY: check-dra
check-dra: ## Run the tests with the scheduler's allocators of Kubernetes 1.35 to 1.37
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/dra" go test -count=1 ./dra/...
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/dra, 1.36" go test $(KUBE36) -count=1 ./dra -sequences=150
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/dra, 1.35" go test $(KUBE35) -count=1 ./dra -sequences=150

.PHONY: check-scheduler
check-scheduler: ## Run the tests of tandem-scheduler
	cd cmd/tandem-scheduler && $(PROGRESS) "cmd/tandem-scheduler; the scheduler's code takes minutes to compile the first time" go test -count=1 ./...

.PHONY: check-kubelet
check-kubelet: ## Run the tests of the built plugins with the managers of kubelet 1.37
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/kubelet; $(KUBELET)" go test -count=1 -timeout 60m ./kubelet/...

.PHONY: check-kubelet36
check-kubelet36: ## Run the tests of the built plugins with the managers of kubelet 1.36 and fewer admissions
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/kubelet, 1.36; $(KUBELET)" go test $(KUBE36) -count=1 -timeout 60m ./kubelet -admissions=60 -chaos=150
	cd test/kubernetes && $(PROGRESS) "models of the kubelet, 1.36" go test $(KUBE36) -count=1 ./kubelet/models

# What decides by a machine, and starts no other program.
ARM := ./topology/... ./coordination/holders ./coordination/device ./coordination/kubelet/... \
	./plugins/rdma/pools ./plugins/gpu/amd

.PHONY: test-arm
test-arm: ## Run the tests that start no other program, built for ARM (needs qemu-user-static)
	CGO_ENABLED=0 GOARCH=arm64 go test -timeout 20m -exec qemu-aarch64-static -skip TestOnSys $(ARM)
	CGO_ENABLED=0 GOARCH=arm64 go test -timeout 20m -exec qemu-aarch64-static -run 'Store|Checkpoint|Write|Disk|NewerFile|TestAnyOrder|ChangedSince' ./coordination/admission ./cmd/tandem/machine

# The packages of tandem and of what decides by a recording, and the tests of tandem that read recordings or start no plugin. A Mac has
# no sysfs, no procfs and no peer credentials of a unix socket.
MAC       := ./cmd/tandem/... ./cmd/tandem-lab ./topology/...
MAC_TESTS := ./topology/... ./cmd/tandem/cluster ./cmd/tandem/cli ./test/simulate/...
MAC_RUN   := ^Test(OnMac|TopoJSON|Simulate|DoctorOf|Help|Version)

.PHONY: test-mac
test-mac: ## Run the tests of tandem that read recordings, on macOS or Linux
	CGO_ENABLED=0 go test -timeout 20m $(MAC_TESTS)
	CGO_ENABLED=0 go test -timeout 20m -run '$(MAC_RUN)' ./cmd/tandem ./cmd/tandem-lab

.PHONY: browser
browser: ## Test the page of "tandem status --serve" in Chromium, and write screenshots to bin/browser and docs (needs chromium)
	cd test/others && go test -count=1 -v ./browser -screenshots=$(BIN)/browser -documents=$(CURDIR)/docs

##@ Longer tests

.PHONY: race
race: ## Run all tests with the race detector, the kubelet's managers included
	go test -race -count=1 ./...
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/kubelet; $(KUBELET)" go test -race -count=1 -timeout 60m ./kubelet/...

.PHONY: parity
parity: ## List the tests of each required row of the parity checklist; OUTPUT=json for programs
	@mkdir -p $(BIN)
	@{ go test -json ./...; (cd deployments/release && go test -count=1 -json ./image); (cd test/others && go test -count=1 -json ./chart/...); } \
		>$(BIN)/parity.json || true # what failed is in the report
	@go run -buildvcs=false ./test/parity -o $(OUTPUT) <$(BIN)/parity.json

.PHONY: chaos
chaos: ## Admit ADMISSIONS (10000) pods under faults, half with each version of the real kubelet; SEED (1) selects the campaign
	cd test/kubernetes && $(PROGRESS) "kubelet 1.36 under faults; $(KUBELET)" \
		go test $(KUBE36) -count=1 -timeout 2h -v -run '^TestChaos$$' ./kubelet -chaos=$$(($(ADMISSIONS) / 2)) -seed=$(SEED)
	cd test/kubernetes && $(PROGRESS) "kubelet 1.37 under faults; $(KUBELET)" \
		go test -count=1 -timeout 2h -v -run '^TestChaos$$' ./kubelet -chaos=$$(($(ADMISSIONS) / 2)) -seed=$(SEED)

# A simulation allocates much and keeps little: the garbage collector has a third of the time by default. A node keeps the least.
SIMULATE := env GOGC=400 go test
SIMULATE_NODE := env GOGC=1600 go test

# Without SEED, simulate-faults takes its first seed from the clock, so that each run has seeds that nobody has tried, and runs of two
# seconds have none in common. The factor is prime: the remainders of a seed by small numbers choose the properties of a node.
CLOCK_SEED = $(eval CLOCK_SEED := $(shell expr $$(date +%s) \* 999983))$(CLOCK_SEED)
SEED_FAILED = || { echo "make simulate-faults has failed with SEED=$(SEED)" >&2; exit 1; }

.PHONY: simulate-faults
simulate-faults: SEED = $(or $(GIVEN_SEED),$(CLOCK_SEED))
simulate-faults: ## Admit a fifth of ADMISSIONS (10000) pods on the model of the kubelet around a whole node with failing calls, reads, processes and hardware, and a hundredth on a node with the DRA driver; then FAULTS (1000) at each step of the state's files; SEED (of the clock) is the first seed of each, and printed
	@echo "SEED=$(SEED)"
	$(PROGRESS) "a node under faults" \
		$(SIMULATE_NODE) -count=1 -timeout 2h -v -run '^TestNode$$' ./test/simulation -admissions=$$(($(ADMISSIONS) / 5)) -seed=$(SEED) $(SEED_FAILED)
	$(PROGRESS) "the DRA driver under faults" \
		$(SIMULATE_NODE) -count=1 -timeout 2h -v -run '^TestDriver$$' ./test/simulation/dra -admissions=$$(($(ADMISSIONS) / 100)) -seed=$(SEED) $(SEED_FAILED)
	@mkdir -p $(BIN) && rm -f $(BIN)/failpoints.txt
	$(PROGRESS) "the disk under faults" \
		$(SIMULATE) -count=1 -timeout 2h -run '^TestAnyOrder$$' ./coordination/admission ./plugins/dra/claims \
		-disk.faults=$(FAULTS) -disk.seed=$(SEED) -disk.report=$(BIN)/failpoints.txt $(SEED_FAILED)
	@cat $(BIN)/failpoints.txt

.PHONY: load
load: ## Put 1,000 questions a second on the socket for LOAD (1m), with a hostile client, and restart the plugins RESTARTS (10000) times
	$(PROGRESS) "load and restarts" go test -count=1 -timeout 2h -v -run '^(TestLoad|TestRestarts)$$' ./coordination -load=$(LOAD) -restarts=$(RESTARTS)

.PHONY: mutants
mutants: ## Run the tests with each fault in test/mutants, which the tests must detect; MUTANTS=^holders/ selects faults by name
	$(PROGRESS) "tests with a fault in the code" go run -buildvcs=false ./test/mutants -run '$(MUTANTS)' -jobs $$(nproc)

.PHONY: mutate
mutate: ## Measure which share of MUTATIONS (2000) drawn by SEED (1) the tests detect, for each package; takes hours; writes bin/mutate.json, AGAINST=file fails if a package got worse
	@mkdir -p $(BIN)
	$(PROGRESS) "tests with each mutation of a sample" go run -buildvcs=false ./test/mutate -n $(MUTATIONS) -seed $(SEED) -run '$(PACKAGES)' \
		-jobs $$(nproc) -o $(BIN)/mutate.json $(addprefix -against=,$(AGAINST))

.PHONY: verdicts
verdicts: ## Compare VERDICTS (100000) verdicts of tandem-scheduler with the managers of the real kubelet, 1.37 and 1.36; SEED (1) selects the cases
	cd test/kubernetes && $(PROGRESS) "verdicts of kubelet 1.37; $(KUBELET)" \
		go test -count=1 -timeout 3h -v -run '^TestVerdictIsTheKubelets$$' ./kubelet -verdicts=$(VERDICTS) -seed=$(SEED)
	cd test/kubernetes && $(PROGRESS) "verdicts of kubelet 1.36; $(KUBELET)" \
		go test $(KUBE36) -count=1 -timeout 3h -v -run '^TestVerdictIsTheKubelets$$' ./kubelet -verdicts=$(VERDICTS) -seed=$(SEED)

.PHONY: claims
claims: ## Allocate SEQUENCES (10000) random sequences of claims with the scheduler's allocators of 1.35 to 1.37, and check the results; SEED (1) selects the sequences
	cd test/kubernetes && go test -count=1 -timeout 3h -run '^TestRandomClaims$$' ./dra -sequences=$(SEQUENCES) -seed=$(SEED)
	cd test/kubernetes && go test $(KUBE36) -count=1 -timeout 3h -run '^TestRandomClaims$$' ./dra -sequences=$(SEQUENCES) -seed=$(SEED)
	cd test/kubernetes && go test $(KUBE35) -count=1 -timeout 3h -run '^TestRandomClaims$$' ./dra -sequences=$(SEQUENCES) -seed=$(SEED)

##@ Rules of the code

.PHONY: tools
tools: $(TOOLS)/golangci-lint $(TOOLS)/kustomize ## Build the linters into bin/tools, for bin/tools/golangci-lint run ./PACKAGE

.PHONY: census
census: ## Count code, names and forms, beside their limits; NAMES=head lists what figures count, UPDATE=limits or UPDATE=messages writes what make lint compares with
	@go run -buildvcs=false ./test/census -update '$(UPDATE)' -names '$(NAMES)'

.PHONY: lint
lint: tools ## Check code, architecture, formatting, manifests and go.mod files
	@set -e; for module in $(MODULES); do echo "lint $$module"; \
		(cd $$module && $(PROGRESS) "lint $$module; $(KUBELET)" $(TOOLS)/golangci-lint run ./...); done
	$(PROGRESS) "census" go run -buildvcs=false ./test/census -check
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go vet $(MAC)
	cd cmd/tandem-scheduler && go vet $(KUBE36) ./...
	cd test/kubernetes && go vet $(KUBE36) ./dra/... ./kubelet/... && go vet $(KUBE35) ./dra/...
	@for dir in deployments/base deployments/privileged deployments/intent-kubelet deployments/monitoring deployments/dra deployments/dra/claim-templates deployments/scheduler deployments/publish test/vm/deploy/published test/vm/deploy/stock test/vm/deploy/nvidia test/vm/deploy/stand-in test/vm/deploy/intent test/vm/deploy/hints test/vm/deploy/multus test/vm/deploy/device-plugin test/vm/deploy/dra test/vm/deploy/drain; do $(TOOLS)/kustomize build $$dir >/dev/null || exit 1; done
	@set -e; for file in $(wildcard $(addsuffix /go*.mod,$(MODULES) $(PINS))); do \
		(cd $$(dirname $$file) && go mod tidy -modfile=$$(basename $$file) -diff); done

##@ Fuzzing and benchmarks

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@list=$$(go test -list '^Fuzz' ./...) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' | \
	while read -r package name; do \
		echo "== $$package $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null || exit 1; \
	done

.PHONY: bench
bench: $(TOOLS)/benchstat ## Run the benchmarks that match BENCH (.) COUNT (6) times for BENCHTIME (50ms), also with other allocators; compare with the previous run
	@mkdir -p $(BIN)
	@! test -f $(BIN)/bench.txt || mv $(BIN)/bench.txt $(BIN)/bench.before.txt
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) ./... | tee $(BIN)/bench.txt
	cd test/others && go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) ./bench | tee -a $(BIN)/bench.txt
	cd test/others && $(PROGRESS) "what takes others seconds, once" go test -run '^$$' -bench '$(BENCH)' -benchtime 1x ./bench -slow | tee -a $(BIN)/bench.txt
	cd test/kubernetes && go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) ./dra | tee -a $(BIN)/bench.txt
	@! grep -q '^FAIL' $(BIN)/bench.txt
	@cd $(BIN) && $(TOOLS)/benchstat -filter '.unit:(sec/op OR B/op OR allocs/op OR p50-sec OR p99-sec OR optimal)' \
		$$(ls bench.before.txt 2>/dev/null) bench.txt
	@cd $(BIN) && $(TOOLS)/benchstat -filter '.unit:(sec/op OR B/op) /by:(nvidia OR tandem OR tandem-pairs)' -col '/by@(nvidia tandem tandem-pairs)' bench.txt

# Who waits for the kubelet to be compiled can look at this meanwhile.
##@ Try Tandem

.PHONY: plan
plan: ## Build only tandem, and show the devices of a container on a recorded machine
	@$(PROGRESS) "build tandem, a minute the first time" \
		env CGO_ENABLED=0 go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/ ./cmd/tandem
	@echo "A container asks for 4 GPUs and 4 VFs on a recorded server with eight MI300X. Tandem's plan, the pairs on one switch (PIX) each:"; echo
	@$(BIN)/tandem plan --gpus 4 --vfs 4 --machine test/machines/oci-mi300x-derived.txt
	@echo

# Without NVIDIA's library, which no recording has, all programs are built alike, and quickly.
MACHINE ?= test/machines/oci-mi300x-derived.txt

.PHONY: play
play: ## Build the plugins, and try them at a prompt and on a page, on the recorded machine MACHINE
	@$(PROGRESS) "build tandem, tandem-lab and the plugins; it takes minutes the first time" env CGO_ENABLED=0 go build -tags $(TAGS) \
		-buildvcs=$(STAMP) -o $(BIN)/play/ ./cmd/tandem ./cmd/tandem-lab ./cmd/tandem-gpu ./cmd/tandem-rdma
	@$(BIN)/play/tandem-lab play --serve :0 --machine $(MACHINE)

.PHONY: simulate
simulate: ## Build tandem-lab, and compare placement strategies on random containers, on common server A or a recorded MACHINE
	@$(PROGRESS) "build tandem-lab, a minute the first time" env CGO_ENABLED=0 go build -tags $(TAGS) \
		-buildvcs=$(STAMP) -o $(BIN)/play/ ./cmd/tandem-lab
	@$(BIN)/play/tandem-lab simulate $(if $(filter-out file,$(origin MACHINE)),--machine $(MACHINE))

# Without a C compiler the demo leaves the NVIDIA machines out.
NVML := $(if $(filter 1,$(CC_FOUND)),$(BIN)/nvml/libnvidia-ml.so.1)

.PHONY: demo
demo: plan build $(NVML) ## Show a plan, then place pods on every recorded machine through the real kubelet managers and show the pairs
	cd test/kubernetes && $(PROGRESS) "build the demo; $(KUBELET)" go build -buildvcs=false -o $(BIN)/demo ./kubelet/demo
	$(BIN)/demo --bin $(BIN) $(addprefix --nvml=,$(NVML))

##@ Real hardware, kernels and clusters

.PHONY: gpu-check
gpu-check: build ## Compare tandem-gpu's NVIDIA GPUs on this machine with the kernel's data, also under the kubelet's managers, and record the machine
	@set -- /proc/driver/nvidia/gpus/*/information; if ! test -e "$$1"; then \
		echo "gpu-check: skipped: there is no NVIDIA GPU here (nothing in /proc/driver/nvidia/gpus)"; \
	else \
		export CGO_ENABLED=1 GPU_CHECK=yes && go test -count=1 -v -run '^TestThisMachine$$' ./cmd/tandem-gpu && \
		(cd test/kubernetes && $(PROGRESS) "the kubelet's managers; $(KUBELET)" go test -count=1 -v -run '^TestGPUsOfThisMachine$$' ./kubelet) && \
		$(BIN)/tandem record --force -f $(BIN)/this-machine.txt && \
		echo "recorded in bin/this-machine.txt; tandem qualify writes the evidence of a node with Tandem: docs/qualify.md"; \
	fi

# VM is where the virtual machine's parts are kept: 2 GB.
VM ?= $(BIN)/vm

.PHONY: e2e
e2e: build nvml ## Boot an emulated GPU node of a real cluster, install the plugins and check the pods (needs root and Debian 12); writes bin/e2e.html; E2E="--short" for a shorter run
	go build -buildvcs=false -o $(BIN)/e2e ./test/vm
	$(BIN)/e2e --bin $(BIN) --cache $(VM) $(E2E)

# The control plane of a cluster, by version, from the modules that make e2e builds its own from.
PLANE       := $(BIN)/controlplane
PLANES      ?= 1.36.3 1.37.1
PLANE_PARTS := kube-apiserver kube-scheduler kube-controller-manager
PLANE_ALL   := $(PLANE_PARTS) tandem-scheduler
PLANE_RUN   ?= .
PLANE_FLAGS ?=
PLANE_TAKES := the control plane takes half an hour to build the first time

.PHONY: controlplane
controlplane: build nvml $(PLANE)/etcd $(foreach version,$(PLANES),$(PLANE_ALL:%=$(PLANE)/$(version)/%)) ## Test tandem-dra with real API servers, schedulers and kubelet DRA managers; PLANE_RUN selects tests, PLANE_FLAGS sets their flags (-nodes=1000), PLANES (1.36.3 1.37.1) the versions
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/controlplane; $(KUBELET)" go test -count=1 -timeout 90m -v -run '$(PLANE_RUN)' ./controlplane \
		-programs=$(PLANE) -bin=$(BIN) -versions=$(call commas,$(PLANES)) $(PLANE_FLAGS)

.PHONY: schedulers
schedulers: $(PLANE)/etcd $(PLANE)/kueue $(foreach version,$(PLANES),$(PLANE_ALL:%=$(PLANE)/$(version)/%) $(PLANE)/$(version)/nrtmatch) ## Compare the default schedulers with tandem-scheduler, also with Kueue, and serve NodeResourceTopologyMatch, on real control planes with modelled kubelets; PLANE_RUN, PLANE_FLAGS (-load=1500, -many=5000 -many-pods=300) and PLANES as for controlplane
	cd test/kubernetes && $(PROGRESS) "test/kubernetes/controlplane/scheduling" go test -count=1 -timeout 90m -v -run '$(PLANE_RUN)' ./controlplane/scheduling \
		-programs=$(PLANE) -versions=$(call commas,$(PLANES)) $(PLANE_FLAGS)

.PHONY: descheduler
descheduler: ## Test the descheduler with the documented policy for rejected pods
	cd test/descheduler && $(PROGRESS) "build the descheduler's plugins" go test -count=1 ./...

$(PLANE)/etcd: test/kubernetes/controlplane/etcd/go.mod test/kubernetes/controlplane/etcd/go.sum
	cd test/kubernetes/controlplane/etcd && CGO_ENABLED=0 $(PROGRESS) "build etcd" go build -buildvcs=false -ldflags='-s -w' -o $@ go.etcd.io/etcd/server/v3

# Kueue's manager and manifests, built in its module's own folder: with the versions that its maintainers released it with.
KUEUE        := v0.19.2
KUEUE_FOLDER  = $$(go env GOMODCACHE)/sigs.k8s.io/kueue@$(KUEUE)

$(PLANE)/kueue-$(KUEUE)/kueue:
	go mod download sigs.k8s.io/kueue@$(KUEUE)
	mkdir -p $(@D) && cp -rT --no-preserve=mode $(KUEUE_FOLDER)/config $(@D)/config
	cd $(KUEUE_FOLDER) && CGO_ENABLED=0 $(PROGRESS) "build Kueue; it takes half an hour the first time" go build -buildvcs=false \
		-ldflags='-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=$(KUEUE)' -o $@ ./cmd/kueue

$(PLANE)/kueue: $(PLANE)/kueue-$(KUEUE)/kueue
	ln -sfn kueue-$(KUEUE) $@

$(PLANE)/nrtmatch: test/kubernetes/controlplane/nrtmatch/main.go test/kubernetes/controlplane/nrtmatch/go.mod test/kubernetes/controlplane/nrtmatch/go.sum
	cd test/kubernetes/controlplane/nrtmatch && CGO_ENABLED=0 $(PROGRESS) "build NodeResourceTopologyMatch; $(PLANE_TAKES)" go build -buildvcs=false \
		-ldflags='-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4' -o $@ .

# One scheduler is beside all control planes: it is of no version of theirs.
$(foreach version,$(PLANES),$(PLANE)/$(version)/nrtmatch): $(PLANE)/nrtmatch
	@mkdir -p $(@D)
	ln -sf ../nrtmatch $@

# The plugin changes, so go build is always asked.
.PHONY: $(PLANES:%=$(PLANE)/%/tandem-scheduler)
$(PLANE)/1.36.3/tandem-scheduler:
	$(call SCHEDULER_BUILD,1.36.3) $(KUBE36) -o $@ .

$(PLANE)/1.37.1/tandem-scheduler:
	$(call SCHEDULER_BUILD,1.37.1) -o $@ .

$(PLANE)/1.36.3/%: test/vm/kubernetes/go.mod
	cd test/vm/kubernetes && CGO_ENABLED=0 $(PROGRESS) "build $*; $(PLANE_TAKES)" go build -buildvcs=false \
		-ldflags='-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3' -o $@ k8s.io/kubernetes/cmd/$*

$(PLANE)/1.37.1/%: test/vm/kubernetes/go.v1.37.mod
	cd test/vm/kubernetes && CGO_ENABLED=0 $(PROGRESS) "build $*; $(PLANE_TAKES)" go build -modfile=go.v1.37.mod -buildvcs=false \
		-ldflags='-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1' -o $@ k8s.io/kubernetes/cmd/$*

##@ Generated code, images and releases

.PHONY: generate
generate: $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## Generate the Go code of the gRPC protocols (needs protoc 3.21)
	PATH="$(TOOLS):$$PATH" protoc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. coordination/api/*.proto plugins/health/*.proto

# Architectures of nodes beside this machine's. Debian's cross compilers (gcc-aarch64-linux-gnu) build their tandem-gpu; without one it
# has not NVIDIA's library, which leaves it AMD's GPUs. BUSYBOX_arm64 names the program of busybox-static:arm64.
ALSO         ?=
CROSS_amd64  := x86_64-linux-gnu-
CROSS_arm64  := aarch64-linux-gnu-
commas       = $(shell echo $(1) | tr ' ' ,)

.PHONY: image
image: build $(ALSO:%=build-%) ## Build the container image IMAGE:TAG (default TAG: the version) as bin/image.tar, for this machine's architecture and ALSO=arm64, without a container engine (needs busybox-static)
	cd deployments/release && go run -buildvcs=false ./image --tag $(IMAGE)$(addprefix :,$(TAG)) --tarball $(BIN)/image.tar \
		--bin $(call commas,$(BIN) $(ALSO:%=$(BIN)/%)) --busybox $(call commas,$(BUSYBOX) $(foreach arch,$(ALSO),$(BUSYBOX_$(arch))))

# What the Dockerfile copies.
.PHONY: image-root
image-root: build ## Write the files of the container image into bin/root, for the Dockerfile (needs busybox-static)
	rm -rf $(BIN)/root
	cd deployments/release && go run -buildvcs=false ./image --bin $(BIN) --busybox $(BUSYBOX) --root $(BIN)/root

.PHONY: build-amd64 build-arm64
build-amd64 build-arm64: build-%:
	@command -v $(CROSS_$*)gcc >/dev/null || echo "tandem-gpu for $* gets AMD's GPUs alone: there is no $(CROSS_$*)gcc"
	CGO_ENABLED=0 GOARCH=$* go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/$*/ ./cmd/tandem ./cmd/tandem-lab ./cmd/tandem-rdma ./cmd/config-manager
	CGO_ENABLED=$$(command -v $(CROSS_$*)gcc >/dev/null && echo 1 || echo 0) CC=$(CROSS_$*)gcc GOARCH=$* \
		go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/$*/ ./cmd/tandem-gpu ./cmd/tandem-dra

# For Macs only tandem, also as kubectl-tandem, and tandem-lab.
.PHONY: build-darwin
build-darwin: ## Build tandem and tandem-lab for macOS into bin/darwin-amd64 and bin/darwin-arm64
	@set -e; for arch in amd64 arm64; do echo "build tandem for macOS on $$arch"; CGO_ENABLED=0 GOOS=darwin GOARCH=$$arch \
		go build -tags $(TAGS) -buildvcs=$(STAMP) -o $(BIN)/darwin-$$arch/ ./cmd/tandem ./cmd/tandem-lab; done

# What a release has, for the two architectures of nodes: HERE is this machine's, THERE the other one.
RELEASE  := $(BIN)/release
REGISTRY ?= ghcr.io/tandem-k8s
HERE      = $(shell go env GOARCH)
THERE     = $(filter-out $(HERE),amd64 arm64)
SHELLS    = $(BUSYBOX) $(BUSYBOX_$(THERE))

.PHONY: release
release: release-needs build ## Build a release in bin/release: images, chart, release.yaml, archives, packages, SBOMs, checksums (needs busybox-static of both architectures and the cross compiler); SOURCES names the sources of busybox and glibc
	$(MAKE) build-$(THERE) build-darwin
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	cd deployments/release && go run -buildvcs=false ./image --tag $(REGISTRY)/tandem --tarball $(RELEASE)/image.tar \
		--bin $(BIN),$(BIN)/$(THERE) --busybox $(call commas,$(SHELLS))
	$(MAKE) tandem-scheduler
	export GOARCH=$(THERE); $(call SCHEDULER_BUILD,$(SCHEDULER)) $(SCHEDULER_MOD) -o $(BIN)/$(THERE)/ .
	cd deployments/release && go run -buildvcs=false ./image --scheduler $(BIN)/tandem-scheduler,$(BIN)/$(THERE)/tandem-scheduler \
		--tag $(REGISTRY)/tandem-scheduler --tarball $(RELEASE)/image-scheduler.tar
	cd test/others && $(PROGRESS) "pack the chart; Helm takes minutes to compile the first time" \
		go run -buildvcs=false ./chart/pack --program $(BIN)/tandem --out $(RELEASE)
	cd test/others && go run -buildvcs=false ./chart/release --chart $(RELEASE)/tandem-*.tgz --set image.repository=$(REGISTRY)/tandem --out $(RELEASE)/release.yaml
	$(if $(SOURCES),cp $(SOURCES) $(RELEASE)/)
	cd deployments/release && go run -buildvcs=false . --bin $(BIN),$(BIN)/$(THERE),$(BIN)/darwin-amd64,$(BIN)/darwin-arm64 \
		--image $(RELEASE)/image.tar --scheduler-image $(RELEASE)/image-scheduler.tar --out $(RELEASE)

# Everybody gets the same from a release, or nobody does: nothing is left out here because a program is missing.
.PHONY: release-needs
release-needs:
	@for compiler in $(CC) $(CROSS_$(THERE))gcc; do command -v $$compiler >/dev/null || \
		{ echo "$$compiler is missing: install Debian's gcc and gcc-$(subst _,-,$(patsubst %-,%,$(CROSS_$(THERE))))" >&2; exit 1; }; done
	@test $(words $(SHELLS)) = 2 || { echo "give BUSYBOX_$(THERE), the program of Debian's busybox-static:$(THERE)" >&2; exit 1; }
	@for shell in $(SHELLS); do test -x $$shell || { echo "$$shell is missing: it is in Debian's busybox-static" >&2; exit 1; }; done

.PHONY: image-scheduler
image-scheduler: tandem-scheduler ## Build the image IMAGE-scheduler:TAG of tandem-scheduler as bin/image-scheduler.tar
	cd deployments/release && go run -buildvcs=false ./image --scheduler $(BIN)/tandem-scheduler --tag $(IMAGE)-scheduler$(addprefix :,$(TAG)) \
		--tarball $(BIN)/image-scheduler.tar

.PHONY: image-test
image-test: ## Start the programs in the container image's root as operators do (needs root and busybox-static)
	@test -x $(BUSYBOX) || { echo "$(BUSYBOX) is missing: install the Debian package busybox-static" >&2; exit 1; }
	cd deployments/release && BUSYBOX=$(BUSYBOX) go test -count=1 ./image

.PHONY: clean
clean: ## Remove bin, but keep Go's caches
	rm -rf $(BIN)

# The tools are pinned by test/tools/go.mod and built once.
TOOL_golangci-lint      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
TOOL_benchstat          := golang.org/x/perf/cmd/benchstat
TOOL_kustomize          := sigs.k8s.io/kustomize/kustomize/v5
TOOL_protoc-gen-go      := google.golang.org/protobuf/cmd/protoc-gen-go
TOOL_protoc-gen-go-grpc := google.golang.org/grpc/cmd/protoc-gen-go-grpc

$(TOOLS)/%: test/tools/go.mod test/tools/go.sum
	cd test/tools && $(PROGRESS) "build $*, a minute or two the first time" go build -o $@ $(TOOL_$*)

# Of presets or other files of values: make release.yaml IMAGE=registry.example/tandem TAG=v1 VALUES=deployments/helm/tandem/presets/oci.yaml
NAMESPACE    ?= kube-system
KUBE_VERSION ?= 1.37.0

.PHONY: release.yaml
release.yaml: ## Write the chart's manifests for IMAGE:TAG (default TAG: the version) to bin/release.yaml, for NAMESPACE (kube-system) on KUBE_VERSION (1.37.0); VALUES lists files of values
	@mkdir -p $(BIN)
	cd test/others && go run -buildvcs=false ./chart/release --namespace $(NAMESPACE) --kube-version $(KUBE_VERSION) \
		--set image.repository=$(IMAGE) --set-string image.tag=$(TAG) \
		$(foreach file,$(VALUES),-f $(abspath $(file))) --out $(BIN)/release.yaml
