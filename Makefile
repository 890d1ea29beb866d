# Everything a contributor runs. `make` alone lists the targets.
#
#   PYTHON=...   the interpreter to build .venv with, 3.11 or newer
#   ARGS=...     more arguments for the command behind a target: make test ARGS="-k copy -x"
#   JOBS=...     how many test files run side by side
#   UPGRADE=1    with `make lock`: take the newest versions instead of keeping the locked ones

PYTHON ?= python3
ARGS ?=
JOBS ?= 2

# Hundreds of processes import the same modules: without compiled ones on disk each of them compiles all of its own.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
LOCK_ANY := pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url $(if $(UPGRADE),--upgrade)
LOCK := $(LOCK_ANY) --python-version 3.11
LOCK_PROJECT := $(LOCK) --constraints requirements/constraints.txt pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help env emulators prometheus demo docs test test-unit test-spark43 lint format bench fuzz kills long lakes warehouses prove-bigquery prove-clickhouse prove-snowflake soak shapes worlds mischief wheel image lock clean jdk

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

# A shell fragment. Leaves an interpreter of 3.11 or newer in $py and the command for uv in "$@".
# uv is looked for on PATH, then fetched by pip; where pip may not touch the system's Python (PEP 668), or the interpreter
# lives in a virtual environment, uv gets a small environment of its own, .venv-tools.
define TOOLS
set -e; \
py=; \
for candidate in "$(PYTHON)" python3.13 python3.12 python3.11 python3.14; do \
	if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		py=$$("$$candidate" -c 'import sys; print(sys.executable)'); break; \
	fi; \
done; \
if [ -z "$$py" ]; then \
	echo "walrelay needs Python 3.11 or newer; '$(PYTHON)' is not. Install one, or say: make PYTHON=/path/to/python3.11" >&2; \
	exit 1; \
fi; \
if uv --version >/dev/null 2>&1; then set -- uv; \
elif .venv-tools/bin/uv --version >/dev/null 2>&1; then set -- .venv-tools/bin/uv; \
elif "$$py" -m uv --version >/dev/null 2>&1; then set -- "$$py" -m uv; \
elif echo "uv is not installed, fetching it with pip" && "$$py" -m pip install --quiet --user uv 2>/dev/null \
	&& "$$py" -m uv --version >/dev/null 2>&1; then set -- "$$py" -m uv; \
else \
	echo "pip leaves this Python alone, putting uv into .venv-tools"; \
	"$$py" -m venv .venv-tools && .venv-tools/bin/python -m pip install --quiet --disable-pip-version-check uv || { \
		rm -rf .venv-tools; \
		echo "Could not fetch uv. Install it by hand, or on Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; \
	}; \
	set -- .venv-tools/bin/uv; \
fi
endef

env: .venv/.stamp ## create or refresh .venv from the locks, with kernels compiled and Spark's classes archived

# The stamp comes last, so an interrupted run is taken up again by the next one.
.venv/.stamp: requirements/dev.lock pyproject.toml
	@$(TOOLS); \
	$(BIN)/python -c '' 2>/dev/null || { rm -rf .venv; "$$@" venv --quiet --python "$$py" .venv; }; \
	"$$@" pip install --python $(BIN)/python --require-hashes -r requirements/dev.lock; \
	"$$@" pip install --python $(BIN)/python --no-deps --no-build-isolation -e .
	@echo "compiling the kernels and archiving Spark's classes; this takes about a minute"
	@$(BIN)/python -m walrelay.spark.class_archive & $(BIN)/python -m walrelay.decode.warm && wait
	@touch $@

# The benchmarks' own packages go into .venv, the peer they compare with into an environment of its own.
.venv/.stamp-bench: .venv/.stamp requirements/bench.lock
	@$(TOOLS); "$$@" pip install --python $(BIN)/python --require-hashes -r requirements/bench.lock
	@touch $@

.venv-peers/.stamp: requirements/peers.lock
	@$(TOOLS); \
	.venv-peers/bin/python -c '' 2>/dev/null || { rm -rf .venv-peers; "$$@" venv --quiet --python "$$py" .venv-peers; }; \
	"$$@" pip install --python .venv-peers/bin/python --require-hashes -r requirements/peers.lock
	@touch $@

# The newest Spark that is supported, beside the locked one.
.venv-spark43/.stamp: requirements/spark43.lock pyproject.toml
	@$(TOOLS); \
	.venv-spark43/bin/python -c '' 2>/dev/null || { rm -rf .venv-spark43; "$$@" venv --quiet --python "$$py" .venv-spark43; }; \
	"$$@" pip install --python .venv-spark43/bin/python --require-hashes -r requirements/spark43.lock; \
	"$$@" pip install --python .venv-spark43/bin/python --no-deps --no-build-isolation -e .
	@.venv-spark43/bin/python -m walrelay.spark.class_archive
	@touch $@

# What stands in for a service in tests, each in an environment of its own. Where one cannot be had, `make test` goes on, and its
# tests say what is missing.
EMULATORS := clickhouse snowflake bigquery
emulators: $(EMULATORS:%=.venv-emulators/%/.stamp) ## environments for what stands in for warehouses in tests

.venv-emulators/%/.stamp: requirements/emulators/%.lock scripts/emulator
	@$(TOOLS); sh scripts/emulator $* "$$py" "$$@"

.venv-docs/.stamp: requirements/docs.lock
	@$(TOOLS); \
	.venv-docs/bin/python -c '' 2>/dev/null || { rm -rf .venv-docs; "$$@" venv --quiet --python "$$py" .venv-docs; }; \
	"$$@" pip sync --quiet --python .venv-docs/bin/python --require-hashes requirements/docs.lock
	@touch $@

docs: .venv-docs/.stamp ## build the site of the documentation into site/, and check its links
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict $(ARGS)

jdk:
	@sh scripts/check-jdk

demo: jdk env ## replicate a throwaway Postgres into DuckDB and watch it
	$(BIN)/walrelay demo $(ARGS)

test: jdk env emulators ## run all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-spark43: jdk .venv-spark43/.stamp ## run the tests that need Spark on Spark 4.3
	.venv-spark43/bin/python -m pytest tests/spark $(ARGS)

test-unit: env ## run the tests that need neither a JVM nor Postgres (seconds)
	$(BIN)/python -m pytest tests/unit $(ARGS)

lint: env ## check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

format: env ## put the code into its standard form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: jdk .venv/.stamp-bench .venv-peers/.stamp ## measure both roads against their limits and peers
	$(BIN)/python -m benchmarks copy $(ARGS)
	$(BIN)/python -m benchmarks changes $(ARGS)
	$(BIN)/python -m benchmarks pipeline $(ARGS)
	$(BIN)/python -m benchmarks tables

fuzz: env ## feed the decoder 100 000 damaged streams
	$(BIN)/python -m benchmarks fuzz $(ARGS)

# The tests that repeat something by tests/repetitions.py: here all of it.
REPEATED := tests/faults tests/contract tests/e2e/test_demo.py tests/spark/test_cluster.py tests/spark/test_handover.py \
	tests/spark/test_frames.py tests/spark/test_duckdb_frames.py tests/integration/test_change_road.py tests/integration/test_duckdb_events.py

kills: jdk env ## kill drivers, workers, capture and demos at every place, with every seed (make test does some)
	WALRELAY_ALL_KILLS=1 $(BIN)/python -m pytest $(REPEATED) $(ARGS)

prometheus: ## Debian's Prometheus, for the tests that watch a pipeline with it (make long)
	@sh scripts/get-prometheus || true

long: jdk env emulators prometheus ## run the tests that make test leaves out because they take long
	WALRELAY_ALL_KILLS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m long $(ARGS)

lakes: jdk env ## run the whole contract of destinations on lakes, and kill drivers at every place (make test does some)
	WALRELAY_ALL_KILLS=1 $(BIN)/python -m pytest tests/lake $(ARGS)

warehouses: jdk env emulators ## run all that make test leaves out of the warehouses: the whole contract, every type, kills
	WALRELAY_ALL_KILLS=1 $(BIN)/python -m pytest tests/warehouse $(ARGS)

prove-bigquery: jdk env ## prove the BigQuery destination on the real service: PROJECT=… DATASET=… [OPTIONS=location=EU]
	$(BIN)/python scripts/prove-bigquery "$(PROJECT)" "$(DATASET)" "$(OPTIONS)"

prove-snowflake: jdk env ## prove the Snowflake destination on the real service: URL=snowflake://…
	@$(BIN)/python scripts/prove-snowflake "$(URL)"

prove-clickhouse: jdk env ## copy, change, crash and verify into a real server: make prove-clickhouse URL=clickhouse://user:password@host/database
	$(BIN)/python scripts/prove-clickhouse "$(URL)" $(ARGS)

wheel: jdk env ## build the wheel, install it into an environment of its own, and run pipelines from it
	$(BIN)/python scripts/try-wheel $(ARGS)

image: env ## build the container image with buildah, run it on a Postgres, and see that it is well and stops in order
	$(BIN)/python scripts/try-image $(ARGS)

soak: jdk env ## kill pipelines at 30 random moments and compare
	$(BIN)/python -m benchmarks soak $(ARGS)

shapes: jdk env ## alter tables in every way, also with drivers killed, with and without the DDL trigger
	WALRELAY_ALL_SHAPES=1 $(BIN)/python -m pytest -s tests/spark/test_shape_matrix.py tests/spark/test_random_worlds.py $(ARGS)

worlds: jdk env ## change tables and publications at random, kill pipelines, compare: 200 seeds
	$(BIN)/python -m benchmarks worlds $(ARGS)

mischief: jdk env ## do to a pipeline, for an hour, whatever may happen to one, and see that it is well in the end
	$(BIN)/python -m benchmarks mischief $(ARGS)

lock: ## write requirements/*.lock anew from pyproject.toml (UPGRADE=1 for newer versions)
	@$(TOOLS); \
	"$$@" $(LOCK_PROJECT) -o requirements/base.lock; \
	"$$@" $(LOCK_PROJECT) --extra demo -o requirements/demo.lock; \
	"$$@" $(LOCK_PROJECT) --extra dev -o requirements/dev.lock; \
	"$$@" $(LOCK) --constraints requirements/dev.lock pyproject.toml --extra image -o requirements/image.lock; \
	"$$@" $(LOCK) --constraints requirements/dev.lock requirements/backend.txt -o requirements/backend.lock; \
	"$$@" $(LOCK_PROJECT) --extra bench -o requirements/bench.lock; \
	"$$@" $(LOCK) --group docs -o requirements/docs.lock; \
	"$$@" $(LOCK) --constraints requirements/spark43.txt pyproject.toml --extra dev -o requirements/spark43.lock; \
	"$$@" $(LOCK) requirements/peers.txt -o requirements/peers.lock; \
	"$$@" $(LOCK) requirements/emulators/clickhouse.txt -o requirements/emulators/clickhouse.lock; \
	"$$@" $(LOCK) requirements/emulators/snowflake.txt -o requirements/emulators/snowflake.lock; \
	"$$@" $(LOCK_ANY) --python-version 3.13 --override requirements/emulators/bigquery-overrides.txt \
		requirements/emulators/bigquery.txt -o requirements/emulators/bigquery.lock

clean: ## remove caches and build output, keep .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	rm -f .venv/.stamp # the compiled kernels went with the caches
