# make install   the program in .venv, with what it needs to run
# make lint      every gate that reads the tree; `make -k lint` goes on after the first that fails
# make test      lint, a container engine where root can have one, all tests, the scenarios every change must pass
# make test-fast  while a change is made: the linters of Python and the tests that answer soonest, 3 minutes on two cores
# make coverage  lines and branches that the tests of test-fast run, as a table in .build/coverage.md
# make molecule  every Molecule scenario; MOLECULE_ARGS='upgrade-rollback' chooses, molecule/README.md says more
# make bench     figures of docs/measurements.md, as ratios within one run
# make gpu       every GPU-dependent part on this machine's GPU, offline: PYTHON is a Python with PyTorch, see docs/gpu.md
# make dist      sdist and wheel in dist/, the wheel installed into an environment of its own and tried
# make collection  the Ansible collection gpu.provision, assembled from playbooks/ and packed into .build/collection
# make man       the manual pages in .build/man, from the same source as --help
# make site      the published site in .build/site: a page for each fact, the docs, the page of the matrix
# make docs      rewrite the parts of the docs that are generated, and run their examples again
# make clean     remove build outputs and caches; .venv stays
#
# PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS='-k image' the tests. PIP_* and UV_* are read by pip and uv.

.POSIX:
.PHONY: install dev lint test test-fast coverage scenarios molecule engine browser prometheus ray gpu bench dist collection man site docs clean \
	lint-python lint-types lint-layers lint-data lint-dockerfiles lint-yaml lint-ansible lint-shell lint-spelling

BIN = .venv/bin
RUNTIME = .venv/.installed
DEVELOPMENT = .venv/.installed-test
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 8
PYTEST_ARGS =
# The tests start thousands of Python processes: each would compile all it imports where the environment forbids bytecode.
BYTECODE = env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$$PWD/.build/bytecode"
FAST_TESTS = $(wildcard tests/test_*.py tests/unit/test_*.py) tests/data tests/mutations \
	$(addprefix tests/unit/,audit doctor generate index matrix resolve verify) \
	$(addprefix tests/cli/test_,check.py image.py main.py resolve.py) \
	$(addprefix tests/packaging/test_,import_budget.py layers.py no_facts_in_code.py)
# Less the files that cost most or start other programs: `make test` runs them.
FAST_TESTS_LESS = $(addprefix --ignore=tests/,data/test_mixed_images.py unit/audit/test_public_files.py \
	unit/generate/cluster unit/generate/test_monitoring.py unit/verify/test_testinfra.py)
MOLECULE_ARGS = --all
GPU_ARGS =
SCENARIOS = default check-mode faults

install: $(RUNTIME)

dev: $(DEVELOPMENT)

$(RUNTIME): pyproject.toml tools/venv.sh
	@sh tools/venv.sh .venv '.'
	@touch $@

$(DEVELOPMENT): pyproject.toml tools/venv.sh
	@sh tools/venv.sh .venv '.[test]'
	@touch $(RUNTIME) $@

# A finding of a linter does not hide what the tests say, nor these what the scenarios say: all run, any fails the whole.
# The tests run beside the others, one process a core, and are shown behind them: the summary of pytest ends the output.
test: $(DEVELOPMENT) engine browser prometheus ray
	@$(BYTECODE) $(BIN)/python tools/gate.py '$(MAKE) -k lint' '$(MAKE) scenarios' -- $(PYTEST) $(PYTEST_ARGS)

# What needs no engine, index, server or playbook, and answers soonest. It decides nothing: `make test` does.
test-fast: $(DEVELOPMENT)
	@$(BYTECODE) $(BIN)/python tools/gate.py '$(MAKE) -k lint-python lint-types lint-layers' -- $(PYTEST) $(FAST_TESTS) $(FAST_TESTS_LESS) $(PYTEST_ARGS)

coverage: $(DEVELOPMENT)
	$(PYTEST) $(FAST_TESTS) --cov --cov-report=markdown:.build/coverage.md $(PYTEST_ARGS)

# Where nothing can boot a node (exit 7) this says so and passes; PROVISION_REQUIRE_ENGINE=1 makes that a failure.
scenarios: $(DEVELOPMENT) engine
	@status=0; $(BYTECODE) $(BIN)/python tools/molecule.py --again $(SCENARIOS) || status=$$?; \
	if [ $$status -eq 7 ] && [ "$$PROVISION_REQUIRE_ENGINE" != 1 ]; then \
		echo 'SKIPPED: nothing here can boot a node (see above), so no scenario ran: $(SCENARIOS)' >&2; \
		status=0; \
	fi; \
	exit $$status

molecule: $(DEVELOPMENT) engine
	$(BIN)/python tools/molecule.py $(MOLECULE_ARGS)

lint: lint-python lint-types lint-layers lint-data lint-dockerfiles lint-yaml lint-ansible lint-shell lint-spelling

lint-python: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(DEVELOPMENT)
	$(BIN)/mypy --strict provision tools

lint-layers: $(DEVELOPMENT)
	$(BIN)/lint-imports --no-logo

lint-data: $(DEVELOPMENT)
	$(BIN)/python -m tools.check_schemas

lint-dockerfiles: $(DEVELOPMENT)
	@sh tools/lint.sh dockerfiles $(BIN)/hadolint

lint-yaml: $(DEVELOPMENT)
	$(BIN)/yamllint --strict .

lint-ansible: $(DEVELOPMENT)
	@sh tools/lint.sh ansible $(BIN)/ansible-lint

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

# The browser tests say likewise why they are skipped; PROVISION_REQUIRE_BROWSER=1 makes that a failure.
browser:
	@sh tools/browser.sh || { \
		echo 'no browser (see above): the browser tests will be skipped' >&2; \
		[ "$$PROVISION_REQUIRE_BROWSER" != 1 ]; \
	}

# So do the tests of Ray clusters; PROVISION_REQUIRE_RAY=1 makes that a failure.
ray: $(DEVELOPMENT)
	@sh tools/ray.sh || { \
		echo 'no Ray (see above): the tests of Ray clusters will be skipped' >&2; \
		[ "$$PROVISION_REQUIRE_RAY" != 1 ]; \
	}

# So do the tests of alerts; PROVISION_REQUIRE_PROMETHEUS=1 makes that a failure.
prometheus:
	@sh tools/prometheus.sh || { \
		echo 'no promtool or Alertmanager (see above): the tests of alerts will be skipped' >&2; \
		[ "$$PROVISION_REQUIRE_PROMETHEUS" != 1 ]; \
	}

# Nothing is installed for it. Where there is no GPU it fails with one line (prove.py ends with 7).
gpu:
	@python=$(BIN)/python; [ -x "$$python" ] || python=$${PYTHON:-python3}; \
	"$$python" -B tests/gpu/prove.py $${PYTHON:+--python "$$PYTHON"} $(GPU_ARGS)

# What needs an engine and a few minutes is run by hand: tests/benchmarks/README.md says how.
bench: $(DEVELOPMENT)
	$(BIN)/python tests/benchmarks/start_up.py

# The wheel is built from the sdist, as an installer without a wheel would.
dist: $(DEVELOPMENT)
	rm -rf dist .build/dist
	$(BIN)/python -m hatchling build -t sdist
	mkdir -p .build/dist && tar -xzf dist/*.tar.gz -C .build/dist
	cd .build/dist/* && ../../../$(BIN)/python -m hatchling build -t wheel -d ../../../dist
	$(BIN)/python -m uv venv --quiet --clear .build/dist/venv
	$(BIN)/python -m uv pip install --quiet --python .build/dist/venv/bin/python dist/*.whl
	.build/dist/venv/bin/provision data check
	.build/dist/venv/bin/provision image --cuda 11.8 --torch 2.1 -o .build/dist/image -q
	.build/dist/venv/bin/provision check .build/dist/image
	.build/dist/venv/bin/provision doctor --xid 79 >.build/dist/doctor.txt

collection: $(DEVELOPMENT)
	$(BIN)/python tools/collection.py .build/collection

man: $(DEVELOPMENT)
	rm -rf .build/man
	$(BIN)/python -m tools.man .build/man

site: $(DEVELOPMENT)
	rm -rf .build/site
	$(BIN)/python -m tools.site .build/site

docs: $(DEVELOPMENT)
	$(BIN)/python tools/docs.py --write

clean:
	rm -rf dist build .build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find provision tests tools images playbooks molecule -type d -name __pycache__ -prune -exec rm -rf {} +
