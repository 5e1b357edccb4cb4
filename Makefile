# Two targets matter: `make demo` and `make test`. Both bring what they need.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/basalt
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TRIPLE := x86_64-unknown-linux-gnu
BIN := $(TARGET)/debug
AGENT := $(TARGET)/$(TRIPLE)/agent/basalt-agent

PORT := 5240

export BASALT_CACHE_DIR := $(CACHE)
export BASALT_AGENT := $(AGENT)
export BASALT_BIN_DIR := $(BIN)

# Building is done as whoever calls; what needs root (images, namespaces, emulated machines) goes through sudo.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo env PATH="$$PATH" CI=$(CI) BASALT_CACHE_DIR=$(CACHE) BASALT_AGENT=$(AGENT) BASALT_BIN_DIR=$(BIN) $(if $(BASALT_SOAK),BASALT_SOAK=1))

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || { echo "make: this needs root (network namespaces, images): run it as root, or install sudo" >&2; exit 1; }

.PHONY: demo-begin
demo-begin: root
	@$(AS_ROOT) tests/lab/demo begin $$PPID

.PHONY: port-free
port-free:
	@! (exec 3<>/dev/tcp/127.0.0.1/$(PORT)) 2>/dev/null || { echo "make: 127.0.0.1:$(PORT) is taken by another program: stop it, or choose another port (make demo PORT=5241)" >&2; exit 1; }

.PHONY: demo
demo: root demo-begin port-free setup images ## Two emulated machines, installed by Terraform, left running (PORT=5240)
	@$(AS_ROOT) $(BIN)/basalt-lab demo --images $(CACHE)/images --example examples/quickstart --port $(PORT)

.PHONY: demo-stop
demo-stop: root ## End the demo, also one that is still being made, and name what stays
	@$(AS_ROOT) tests/lab/demo end
	@[ -x $(BIN)/basalt-lab ] || cargo build -q -p basalt-lab
	@$(AS_ROOT) $(BIN)/basalt-lab demo-stop
	@tests/lab/demo stays $(TARGET)

.PHONY: setup
setup: ## Install the packages that are missing (tests/lab/setup --dry-run names them)
	@tests/lab/setup

.PHONY: python-tools
python-tools: setup
	@tests/python-tools contract >/dev/null
	@tests/python-tools openid >/dev/null
	@tests/python-tools redfish >/dev/null

# The end-to-end tests: those that emulate machines with all that runs on them, and the others. Both take about as long.
MACHINES := quickstart enlistment ipv6 storage
SERVICES := $(filter-out $(MACHINES),$(basename $(notdir $(wildcard tests/tests/*.rs))) $(notdir $(patsubst %/main.rs,%,$(wildcard tests/tests/*/main.rs))))
# Each machine of these has one processor, which is busy, so two of them run at once.
PAIRED := storage
END_TO_END := $(MACHINES) $(SERVICES)

.PHONY: test
test: ## Formatting, lints, unit, integration and end-to-end tests
	@tests/stages setup fmt lint deny package-tfplugin ui-test unit fuzz end-to-end-programs machines+services

.PHONY: fmt
fmt:
	cargo fmt --all --check

.PHONY: lint
lint:
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace $(END_TO_END:%=--test %) -- -D warnings

.PHONY: cargo-deny
cargo-deny:
	@PATH="$(CACHE)/tools/bin:$$PATH"; command -v cargo-deny >/dev/null || \
	  { echo "deny: building cargo-deny once"; cargo install -q --locked cargo-deny --root $(CACHE)/tools; }

.PHONY: deny
deny: cargo-deny ## Licences, bans and sources of all dependencies (deny.toml)
	@PATH="$(CACHE)/tools/bin:$$PATH" cargo deny --all-features check -D warnings -A duplicate licenses bans sources

# Not part of `make test`: no package registry has the RustSec database, and a new advisory is no fault of a change.
.PHONY: advisories
advisories: cargo-deny ## Known weaknesses of all dependencies, by the RustSec database (fetched from its repository)
	@PATH="$(CACHE)/tools/bin:$$PATH" cargo deny --all-features check advisories

.PHONY: package-tfplugin
package-tfplugin: ## tfplugin builds from what would be published of it, alone
	tests/package-tfplugin

.PHONY: unit
unit: ## Everything but the end-to-end tests
	cargo test --workspace

.PHONY: fuzz
fuzz: setup ## Every codec for a short while under libFuzzer, the same each time; INPUTS for longer
	@tests/fuzz/run $(INPUTS)

.PHONY: openapi
openapi: ## Write docs/reference/openapi.json anew, after a change of the API
	cargo run -q -p basalt-api --example openapi > docs/reference/openapi.json

UI := controller/ui
.PHONY: ui
ui: ## Build the console anew into controller/ui/dist, after a change of controller/ui
	$(UI)/with-node npm run --silent types
	$(UI)/with-node npm run --silent check
	$(UI)/with-node npm run --silent build

.PHONY: ui-test
ui-test: ## The console's types and unit tests; and dist is what its sources make
	$(UI)/with-node npm run --silent types
	$(UI)/with-node npm run --silent check
	$(UI)/with-node npm run --silent unit
	$(UI)/with-node npm run --silent build -- --outDir build/dist --emptyOutDir
	@diff -r $(UI)/build/dist $(UI)/dist || { echo "ui: $(UI)/dist is not what its sources make: run make ui, and commit it" >&2; exit 1; }

.PHONY: ui-screenshots
ui-screenshots: binaries ## Pictures of each page of the console in both themes, into target/screenshots
	mkdir -p $(TARGET)/screenshots
	BASALT_SCREENSHOTS=$(TARGET)/screenshots cargo test -p basalt-tests --test console -- --nocapture

.PHONY: agent
agent:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build -p basalt-agent --profile agent --target $(TRIPLE)

.PHONY: binaries
binaries: agent
	cargo build --workspace --bins

# Where Terraform looks by itself: https://developer.hashicorp.com/terraform/cli/config/config-file#implied-local-mirror-directories
PLUGINS := $(HOME)/.terraform.d/plugins
PROVIDER := $(TARGET)/release/terraform-provider-basalt
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
PLATFORM := $(shell uname -s | tr A-Z a-z)_$(subst aarch64,arm64,$(subst x86_64,amd64,$(shell uname -m)))

.PHONY: release-provider
release-provider:
	cargo build --release -p terraform-provider-basalt

.PHONY: install-provider
install-provider: release-provider ## Build the provider and put it where Terraform looks for it (PLUGINS=~/.terraform.d/plugins)
	install -D $(PROVIDER) $(PLUGINS)/registry.terraform.io/basalt-metal/basalt/$(VERSION)/$(PLATFORM)/terraform-provider-basalt_v$(VERSION)
	@echo 'basalt-metal/basalt $(VERSION) is in $(PLUGINS); configurations with it need `terraform init` (and a new lock file, where they had another build of it)'

.PHONY: images
images: root binaries ## The ephemeral image and Debian 12, built once and cached
	$(AS_ROOT) $(BIN)/basalt image build ephemeral --agent $(AGENT) --output $(CACHE)/images/ephemeral --cache-dir $(CACHE)/images/cache
	$(AS_ROOT) $(BIN)/basalt image build debian --output $(CACHE)/images/debian --cache-dir $(CACHE)/images/cache

.PHONY: previous
previous:
	@tests/upgrade/previous >/dev/null

# The whole workspace is named: cargo then builds nothing a second time with other features.
TEST := $(if $(AS_ROOT),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(subst ",,$(AS_ROOT))") cargo test --workspace

.PHONY: end-to-end
end-to-end: ## Real Terraform, real firmware in QEMU, real wire
	@tests/stages end-to-end-programs machines+services

.PHONY: end-to-end-programs
end-to-end-programs: root images python-tools previous
	$(TEST) $(END_TO_END:%=--test %) --no-run

.PHONY: machines
machines: root
	$(TEST) $(patsubst %,--test %,$(filter-out $(PAIRED),$(MACHINES))) -- --nocapture --test-threads=1
	$(TEST) $(PAIRED:%=--test %) -- --nocapture --test-threads=2

.PHONY: services
services: root
	$(TEST) $(SERVICES:%=--test %) -- --nocapture --test-threads=1

# Tests that are long by nature run shortly in `make test`, and at their full length here.
SOAKS := kills changes interruptions histories
.PHONY: soak
soak: root setup images ## Kills, random changes, interruptions and histories at their full length
	@BASALT_SOAK=1 BASALT_HISTORIES=200 tests/stages $(SOAKS:%=soak-%)

.PHONY: soak-kills
soak-kills:
	$(TEST) --test simulated -- --nocapture --test-threads=1 kills::

.PHONY: soak-changes
soak-changes:
	$(TEST) --test simulated -- --nocapture --test-threads=1 announced::

.PHONY: soak-interruptions
soak-interruptions:
	$(TEST) --test terraform -- --nocapture --test-threads=1 kills::

.PHONY: soak-histories
soak-histories:
	cargo test -p basalt-region --test region -- --nocapture played::

# One line of JSON a benchmark, also in target/bench.jsonl; more is better in every ratio.
API_BENCHES := $(addprefix api_,get_one put_one list_500 apply_10000 watch_200)
RACK_BENCHES := bmc_readings dhcp_dora dns_answers dns_forward dns_zone failover http_image memory_rack ntp_answers tftp_one_client
BENCHES := provider_handshake terraform_plan_1000 terraform_apply_1000 $(API_BENCHES) allocate_5000 allocate_address memory_region ui_10000 fleet strangers $(RACK_BENCHES) boot_to_ready
# Never by /dev/stderr: to open it again truncates the file that it may be.
RECORD := awk -v record=$(TARGET)/bench.jsonl '/^[{]/ { print >> record; n++ } { print; fflush() } END { exit !n }'

.PHONY: bench
bench: $(addprefix bench-,$(BENCHES)) ## All benchmarks; bench-NAME runs one

.PHONY: bench-provider_handshake
bench-provider_handshake:
	cargo bench -q -p terraform-provider-basalt --bench provider_handshake | $(RECORD)

TERRAFORM_BENCHES := $(addprefix bench-terraform_,plan_1000 apply_1000)
.PHONY: $(TERRAFORM_BENCHES)
$(TERRAFORM_BENCHES): setup
	cargo build -q --release -p basalt-region --bin basalt-region
	cargo bench -q -p terraform-provider-basalt --bench $(@:bench-%=%) | $(RECORD)

.PHONY: $(addprefix bench-,$(API_BENCHES))
$(addprefix bench-,$(API_BENCHES)): setup
	cargo bench -q -p basalt-region --bench api -- $(@:bench-api_%=%) | $(RECORD)

.PHONY: bench-allocate_5000
bench-allocate_5000: setup
	cargo bench -q -p basalt-region --bench allocate_5000 | $(RECORD)

.PHONY: bench-allocate_address
bench-allocate_address: setup
	cargo bench -q -p basalt-db --bench allocate_address | $(RECORD)

.PHONY: bench-memory_region
bench-memory_region: setup
	cargo bench -q -p basalt-region --bench memory_region | $(RECORD)

# So many machines; the last line compares the cost of one in the largest fleet with that in the smallest.
FLEET := 100 300 1000
.PHONY: bench-fleet
bench-fleet: root setup
	cargo build -q --release --workspace --bins
	$(AS_ROOT) env BASALT_BIN_DIR=$(TARGET)/release cargo bench -q -p basalt-tests --bench fleet -- $(FLEET) | $(RECORD)

.PHONY: bench-strangers
bench-strangers: root setup
	cargo build -q --release --workspace --bins
	$(AS_ROOT) env BASALT_BIN_DIR=$(TARGET)/release cargo bench -q -p basalt-tests --bench strangers -- 200 | $(RECORD)

.PHONY: bench-ui_10000
bench-ui_10000: setup
	cargo bench -q -p basalt-tests --bench ui_10000 | $(RECORD)

.PHONY: $(addprefix bench-,$(RACK_BENCHES))
$(addprefix bench-,$(RACK_BENCHES)): setup
	cargo bench -q -p basalt-rack --bench $(@:bench-%=%) | $(RECORD)

.PHONY: bench-boot_to_ready
bench-boot_to_ready: root setup images
	$(AS_ROOT) tests/lab/stock-live $(CACHE)/images/stock-live $(CACHE)/images/debian
	$(AS_ROOT) $(BIN)/basalt-lab bench-boot-to-ready --images $(CACHE)/images --stock $(CACHE)/images/stock-live | $(RECORD)
