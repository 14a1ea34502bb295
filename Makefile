# Every target makes what it needs: `make demo` and `make test` each work alone on a fresh clone.
# Needed: cargo (1.95 or newer), Python 3.11 or newer with venv, a C linker. Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md LICENSE-MIT LICENSE-APACHE .cargo/config.toml \
	$(shell find crates python ! -name '*.pyc' ! -name __pycache__)

# Cargo and maturin must agree on the interpreter; the package under test is the one in .venv.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
unexport PYTHONPATH
PARTS := $(addprefix .test-python-,1 2 3 4 5 6)
# Beside other work of make, cargo would look for jobs of its own in MAKEFLAGS.
ALONE := env -u MAKEFLAGS

.DEFAULT_GOAL := help
.PHONY: help setup build test engines lint demo bench bench-peers docs site wheel workflows fuzz refusing safety cross clean .lint-tools .test-core .test-stubs $(PARTS)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.tools ## Make .venv with the tools of requirements-dev.txt

build: $(VENV)/.wheel ## Build the release wheel and install it into .venv

demo: $(VENV)/.wheel ## Train a character model on names, print the summary, keep it in runs/demo
	$(BIN)/burtorch train --model char-mlp --steps 3000 --out runs/demo

# The release build is on one core for most of its time. A build from nothing needs no state for the next one, nor lines in
# backtraces: what `cargo test` builds with both lies beside it. Tests that measure time run alone, in one process.
test: export CARGO_INCREMENTAL := 0
test: export CARGO_PROFILE_DEV_DEBUG := 0
test: .lint-tools $(VENV)/.tools ## Run every test: lint, the core, the stubs, the installed wheel, the README
	@$(MAKE) --no-print-directory --jobs=2 .test-core $(VENV)/.wheel
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=recurse .test-stubs $(PARTS)
	$(BIN)/pytest -m alone

.test-stubs:
	$(BIN)/python -m mypy.stubtest burtorch._core --allowlist tests/python/stubtest-allowlist.txt --ignore-unused-allowlist

$(PARTS): .test-python-%: # one of six parts, always of the same files in the same order
	$(ALONE) BURTORCH_PART=$*/6 $(BIN)/pytest -q -m "not alone" -p no:cacheprovider

ENGINES := .venv-engines
engines: $(VENV)/.wheel $(ENGINES)/.tools ## Test MPI and Flower, which go to .venv-engines
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/burtorch-*.whl
	$(ENGINES)/bin/python -m pytest tests/python/test_mpi.py tests/python/test_flower.py

.test-core: lint
	$(ALONE) cargo test --locked -p burtorch-core

lint: .lint-tools $(VENV)/.tools ## Check format, lints and types: rustfmt, clippy, ruff, mypy --strict
	cargo fmt --all --check
	$(ALONE) cargo clippy --locked --workspace --all-targets --features burtorch-core/paper -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bench: $(VENV)/.wheel ## Time the core and the eager graphs from Python
	cargo bench --locked -p burtorch-core
	$(BIN)/burtorch bench eager

bench-peers: $(VENV)/.wheel ## Time burtorch beside PyTorch, JAX and others, which go to .venv-peers
	test -x $(PEERS)/bin/python || benches/python/make-peers-venv.sh $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --force-reinstall dist/burtorch-*.whl
	set -e; for bench in benches/python/bench_*.py; do $(PEERS)/bin/python $$bench; done

docs: ## Build the Rust documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps -p burtorch-core

RELEASE := .venv-release
site: $(VENV)/.wheel $(RELEASE)/.tools ## Build the site of the manual and the reference: target/site/html
	$(BIN)/python scripts/site.py --zensical $(RELEASE)/bin/zensical
	$(BIN)/pytest tests/python/test_site.py

# Messages name no folder of this machine, and archives have one date.
wheel: $(RELEASE)/.tools ## Build a wheel for an older Linux (glibc 2.17) with zig: dist/manylinux
	rm -f dist/manylinux/burtorch-*.whl
	$(ALONE) PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-1700000000}" \
		RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo" \
		maturin build --release --locked --compression-level 9 --zig --compatibility manylinux_2_17 --interpreter "$(PYTHON)" --out dist/manylinux
	$(RELEASE)/bin/auditwheel show dist/manylinux/burtorch-*.whl
	sha256sum dist/manylinux/burtorch-*.whl

workflows: $(RELEASE)/.tools ## Check the workflows of .github
	$(RELEASE)/bin/zizmor --offline --persona=pedantic .github
	$(RELEASE)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

fuzz: $(VENV)/.wheel ## Run the property tests for long: 100 times the cases of make test
	PROPTEST_CASES=25600 cargo test --locked --release -p burtorch-core
	cargo test --locked --release -p burtorch-core --test engine arrays:: -- --ignored
	$(BIN)/pytest tests/python --hypothesis-profile=long
	$(BIN)/python tests/python/test_random_arrays.py 100000 1

REFUSING := target/refusing
refusing: $(VENV)/.tools ## Refuse every allocation of every public call, in a build that is made for that
	"$(PYTHON)" -m venv $(REFUSING)
	ls -d $(CURDIR)/$(VENV)/lib/python*/site-packages > $$(ls -d $(REFUSING)/lib/python*/site-packages)/tools.pth
	rm -rf $(REFUSING)/dist
	$(BIN)/maturin build --locked --features refuse-allocations --interpreter $(BIN)/python --out $(REFUSING)/dist
	$(REFUSING)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(REFUSING)/dist/*.whl
	$(REFUSING)/bin/python -m pytest tests/python/test_refused_allocations.py

HOST = $$(rustc -vV | sed -n 's/^host: //p')
# Functions that end in a tail call have a stack frame of fixed size, and so must the sanitizer's variables in them.
ASAN = -Zsanitizer=address -Cllvm-args=-asan-stack-dynamic-alloca=0
safety: ## Run test rings under AddressSanitizer and ThreadSanitizer, and the models of what is atomic with bound 3
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="$(ASAN)" ASAN_OPTIONS=allocator_may_return_null=1 \
		cargo test --locked -p burtorch-core --target $(HOST) --target-dir target/asan \
		--test engine -- --skip chains:: --skip peaks:: --skip traits:: --skip no_alloc:: --skip allocation_failure::
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="$(ASAN)" ASAN_OPTIONS=allocator_may_return_null=1 \
		cargo test --locked -p burtorch-core --target $(HOST) --target-dir target/asan --test levels -- lanes:: gpt::
	RUSTC_BOOTSTRAP=1 TSAN_OPTIONS=report_thread_leaks=0 \
		RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg burtorch_tsan" \
		cargo test --locked -p burtorch-core --target $(HOST) --target-dir target/tsan --test races
	LOOM_MAX_PREEMPTIONS=3 cargo test --locked -p burtorch-core --test models

cross: ## Test the core on aarch64, musl and Windows and the package on CPython 3.14, in a folder with Debian forky, as root (6 GB)
	$(ALONE) "$(PYTHON)" scripts/cross.py --binding

clean: ## Remove .venv and what was built; keep runs and other environments
	rm -rf $(VENV) dist target .hypothesis .mypy_cache .pytest_cache .ruff_cache

.lint-tools: # before .venv is made
	@scripts/check-tools.sh "$(PYTHON)" lint

# The stamps are touched last: what was interrupted is made again from the start.
$(VENV)/.tools: requirements-dev.txt
	@scripts/check-tools.sh "$(PYTHON)"
	rm -rf $(VENV)
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

$(RELEASE)/.tools: requirements-release.txt
	rm -rf $(RELEASE)
	"$(PYTHON)" -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-release.txt
	@touch $@

$(ENGINES)/.tools: requirements-engines.txt
	rm -rf $(ENGINES)
	"$(PYTHON)" -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-engines.txt
	@touch $@

$(VENV)/.wheel: $(VENV)/.tools $(SOURCES)
	@scripts/check-tools.sh $(BIN)/python
	rm -f dist/burtorch-*.whl
	$(ALONE) $(BIN)/maturin build --release --locked --compression-level 9 --interpreter $(BIN)/python --out dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/burtorch-*.whl
	@touch $@
