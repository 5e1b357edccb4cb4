# Two targets matter: `make demo` and `make test`. Both bring what they need.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/basalt
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TRIPLE := x86_64-unknown-linux-gnu
BIN := $(TARGET)/debug
AGENT := $(TARGET)/$(TRIPLE)/agent/basalt-agent

export BASALT_CACHE_DIR := $(CACHE)
export BASALT_AGENT := $(AGENT)
export BASALT_BIN_DIR := $(BIN)

.PHONY: help
help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup:
	@tests/lab/setup

.PHONY: test
test: setup fmt lint deny unit end-to-end ## Formatting, lints, unit, integration and end-to-end tests

.PHONY: fmt
fmt:
	cargo fmt --all --check

.PHONY: lint
lint:
	cargo clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: ## Licences, bans and sources of all dependencies (deny.toml)
	@PATH="$(CACHE)/tools/bin:$$PATH"; command -v cargo-deny >/dev/null || \
	  { echo "deny: building cargo-deny once"; cargo install -q --locked cargo-deny --root $(CACHE)/tools; }; \
	  cargo deny --all-features check -D warnings -A duplicate licenses bans sources

.PHONY: unit
unit: ## Everything that needs no emulated machine
	cargo test --workspace --exclude basalt-tests

.PHONY: agent
agent:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build -p basalt-agent --profile agent --target $(TRIPLE)

.PHONY: binaries
binaries: agent
	cargo build --workspace --bins

.PHONY: images
images: binaries ## The ephemeral image and Debian 12, built once and cached
	$(BIN)/basalt image build ephemeral --agent $(AGENT) --output $(CACHE)/images/ephemeral --cache-dir $(CACHE)/images/cache
	$(BIN)/basalt image build debian --output $(CACHE)/images/debian --cache-dir $(CACHE)/images/cache

.PHONY: end-to-end
end-to-end: images ## Real Terraform, real firmware in QEMU, real wire
	cargo test -p basalt-tests -- --nocapture --test-threads=1
