# make install   the program in .venv, with what it needs to run
# make lint      every gate that reads the tree; `make -k lint` goes on after the first that fails
# make test      lint, a container engine where root can have one, all tests
# make bench     the figures of the README, as ratios within one run
# make docs      rewrite the parts of the docs that are generated
# make clean     remove build outputs and caches; .venv stays
#
# PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS='-k image' the tests. PIP_* and UV_* are read by pip and uv.

.POSIX:
.PHONY: install dev lint test engine bench docs clean \
	lint-python lint-types lint-layers lint-data lint-dockerfiles lint-yaml lint-shell lint-spelling

BIN = .venv/bin
RUNTIME = .venv/.installed
DEVELOPMENT = .venv/.installed-test
PYTEST_ARGS =

install: $(RUNTIME)

dev: $(DEVELOPMENT)

$(RUNTIME): pyproject.toml tools/venv.sh
	@sh tools/venv.sh .venv '.'
	@touch $@

$(DEVELOPMENT): pyproject.toml tools/venv.sh
	@sh tools/venv.sh .venv '.[test]'
	@touch $(RUNTIME) $@

# A finding of a linter does not hide what the tests say: both run, either fails the whole.
test: $(DEVELOPMENT) engine
	@status=0; \
	$(MAKE) -k lint || status=1; \
	$(BIN)/python -m pytest $(PYTEST_ARGS) || status=1; \
	[ $$status -eq 0 ] || echo 'make test: lint or tests failed, see above' >&2; \
	exit $$status

lint: lint-python lint-types lint-layers lint-data lint-dockerfiles lint-yaml lint-shell lint-spelling

lint-python: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(DEVELOPMENT)
	$(BIN)/mypy --strict provision tools

lint-layers: $(DEVELOPMENT)
	$(BIN)/lint-imports --no-logo

lint-data: $(DEVELOPMENT)
	@sh tools/lint.sh data $(BIN)/check-jsonschema

lint-dockerfiles: $(DEVELOPMENT)
	@sh tools/lint.sh dockerfiles $(BIN)/hadolint

lint-yaml: $(DEVELOPMENT)
	$(BIN)/yamllint --strict .

lint-shell: $(DEVELOPMENT)
	@sh tools/lint.sh shell $(BIN)/shellcheck

lint-spelling: $(DEVELOPMENT)
	$(BIN)/typos

# The engine tests say why they are skipped when there is no engine; PROVISION_REQUIRE_ENGINE=1 makes that a failure.
engine:
	@sh tools/engine.sh || { \
		echo 'no container engine (see above): the engine tests will be skipped' >&2; \
		[ "$$PROVISION_REQUIRE_ENGINE" != 1 ]; \
	}

# What needs an engine and a few minutes is run by hand: tests/benchmarks/README.md says how.
bench: $(DEVELOPMENT)
	$(BIN)/python tests/benchmarks/start_up.py

docs: $(DEVELOPMENT)
	$(BIN)/python tools/docs.py --write

clean:
	rm -rf dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find provision tests tools images -type d -name __pycache__ -prune -exec rm -rf {} +
