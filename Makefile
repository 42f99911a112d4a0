# Each target does its own set-up: on a fresh machine only Python, make and the package registries are needed.

PYTHON ?= python3
ARGS ?=

VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
STAMP := $(VENV)/installed-from-lock

.PHONY: help demo test soak fuzz compose-test check audit bench results lock clean

help:
	@echo "make demo    train CartPole on the embedded services until it is solved (ARGS=... are Hydra overrides)"
	@echo "make test    every test, against real Kafka and MinIO (ARGS=... go to pytest)"
	@echo "make soak    outages in full length, and every kill of tests/recovery: an hour or so"
	@echo "make fuzz    five million hostile inputs, ten minutes at least, against everything that decodes (ARGS=... go to tests.fuzz)"
	@echo "make compose-test   docker-compose.yml for real, where a Docker daemon answers"
	@echo "make check   lint, format, types and import directions"
	@echo "make audit   asks whether a locked dependency has a known vulnerability"
	@echo "make bench   the benchmarks (ARGS=... choose among them)"
	@echo "make results the table of docs/results.md: hours; goes on where it was stopped (ARGS='rows=... seeds=...')"
	@echo "make lock    resolve the dependencies of pyproject.toml anew"

# The stamp is written last: an install that was cut short starts over.
$(STAMP): requirements/dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	@echo "Installing into $(VENV): some minutes, once."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# The fuzzer has wheels for some platforms only; on others hypothesis does what it can.
FUZZ_STAMP := $(VENV)/installed-for-fuzzing

$(FUZZ_STAMP): $(STAMP) requirements/fuzz.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/fuzz.txt \
		|| echo "No atheris here: what needs it is left out."
	@touch $(FUZZ_STAMP)

demo: $(STAMP)
	$(BIN)/pipeline demo $(ARGS)

test: $(STAMP) $(FUZZ_STAMP)
	$(BIN)/python -m pipeline.services fetch --kind local --optional
# Two files at a time: much of the time is spent on waiting for services.
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

soak: $(STAMP)
	$(BIN)/python -m pipeline.services fetch --kind local
	OUTAGE_S=30 SOAK=1 $(BIN)/python -m pytest -rP --show-capture=stdout tests/flows/test_outage.py tests/flows/test_ppo.py \
		tests/flows/test_ppo_trouble.py tests/broker/test_transactions.py \
		tests/weights/test_kills.py tests/recovery $(ARGS)

fuzz: $(FUZZ_STAMP)
	if $(BIN)/python -c 'import atheris' 2>/dev/null; then $(BIN)/python -m tests.fuzz --executions 5000000 $(ARGS); fi
	FUZZ=1 $(BIN)/python -m pytest --timeout 3600 tests/fuzz

compose-test: $(STAMP)
	COMPOSE=1 $(BIN)/python -m pytest -rs tests/compose $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# Needs a way to the advisories of PyPI. What is not to be found there counts as a failure.
AUDIT_STAMP := $(VENV)/installed-for-audit

$(AUDIT_STAMP): $(STAMP) requirements/audit.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $(AUDIT_STAMP)

audit: $(AUDIT_STAMP)
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
		$(addprefix --requirement ,$(wildcard requirements/*.txt)) $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

# What the others are measured with; hours of training need it, nothing else does.
RESULTS_STAMP := $(VENV)/installed-for-results

$(RESULTS_STAMP): $(STAMP) requirements/results.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/results.txt
	@touch $(RESULTS_STAMP)

results: $(RESULTS_STAMP)
	$(BIN)/python -m benchmarks.results $(ARGS)

UV_COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --no-annotate --strip-extras

# One lock for every platform: markers tell what only some of them need.
lock: $(STAMP)
	$(UV_COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	$(UV_COMPILE) pyproject.toml --constraint requirements/dev.txt --output-file requirements/runtime.txt
	$(UV_COMPILE) pyproject.toml --extra results --constraint requirements/dev.txt --output-file requirements/results.txt
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['fuzz'], sep='\n')" \
		| $(UV_COMPILE) - --output-file requirements/fuzz.txt
	echo pip-audit | $(UV_COMPILE) - --constraint requirements/dev.txt --output-file requirements/audit.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .fuzz .import_linter_cache
