# Everything there is to do here. `make help` lists it; .ci/run only calls it.

# Builds are shared by all checkouts of this user. Another place: make CARGO_TARGET_DIR=... .
export CARGO_TARGET_DIR ?= $(HOME)/.cache/shoal/target

# What `make run` and `make demo` build. PROFILE=release builds the binary that one would deploy, and takes longer.
PROFILE ?= local
BINARY = $(CARGO_TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/shoal

.DEFAULT_GOAL := help
.PHONY: help own build release dist planner run demo test bench experiments lint fmt

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

own:
	@scripts/own-builds.sh

build: own ## Compile the binary
	cargo build --locked --profile $(PROFILE) --package shoal

release: own ## The programs to deploy, static and stripped, with their symbols beside them
	scripts/release.sh

dist: own ## All that operators install, in dist/: packages, image, chart, wheels (scripts/dist/check.sh tests it)
	scripts/dist/make.sh

planner: own ## What `shoal plan` plans with, beside that binary; installs what it is built with (PROFILE=release)
	PROFILE=$(PROFILE) scripts/planner.sh

run: build ## A lake and three nodes on this machine, until Ctrl-C (ARGS="--nodes 5 --dir /tmp/d")
	$(BINARY) dev $(ARGS)

demo: build ## The same for a moment: read a sample twice from each node, write one that survives its node
	scripts/demo.sh $(BINARY)

test: own ## All that cargo runs, some stories and real clients (QUICK=1: unit tests; ALL=1: everything)
	scripts/test.sh

bench: own ## Side by side with nginx and with the lake itself
	bench/run.sh $(ARGS)

experiments: own ## Published figures, simulated anew (ARGS="--quick d3n-fig11")
	experiments/run.sh $(ARGS)

lint: own ## Format, clippy, links in comments, licences and advisories, layers, tidiness
	scripts/lint.sh

fmt: ## Format the code
	cargo fmt
