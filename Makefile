# Thin: every command here can be typed by hand inside .venv. Only Python >= 3.11, git and make are needed.
PYTHON ?= python3
CORES ?= all
# Test processes: one more than there are cores, since some tests wait for child processes. At most eight.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')
VENV := .venv
STAMP := $(VENV)/installed
CLUSTER := $(VENV)/cluster
DOCS := .venv-docs
FLOWER := .venv-flower
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Python stores compiled files at the first import of a package. Without them each process compiles torch and the other
# packages again, which doubles its start-up time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-cluster reproduce smoke test test-fast test-slurm test-flower lint audit bench docs

setup: $(STAMP)

# Install with uv if available, else with pip, and again only after the locked packages change. --seed adds pip, too.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PYTHON=...")'
	@echo "Installing the locked packages into $(VENV): 3.3 GB to download once, some minutes"
	@rm -rf $(VENV)
	@if command -v uv > /dev/null; then \
		uv venv --quiet --seed --python $(PYTHON) $(VENV) \
		&& uv pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements.lock \
		&& uv pip install --quiet --python $(VENV)/bin/python --no-deps --no-build-isolation -e .; \
	else \
		$(PYTHON) -m venv $(VENV) \
		&& $(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock \
		&& $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $(STAMP)
	@echo "Installed. Next: . $(VENV)/bin/activate && fednoise run quick"

# Additional packages for a cluster: docs/cluster.md
setup-cluster: $(CLUSTER)

$(CLUSTER): $(STAMP) requirements-cluster.lock
	@if command -v uv > /dev/null; then \
		uv pip install --quiet --python $(VENV)/bin/python --no-deps --require-hashes -r requirements-cluster.lock; \
	else \
		$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-cluster.lock; \
	fi
	@touch $(CLUSTER)

reproduce: setup
	snakemake --cores $(CORES)

# Every table and figure of the papers at test size, to check that everything runs
smoke: setup
	snakemake --cores $(CORES) papers --config scale=smoke

# For contributors after each change: tests without Snakemake and without a browser
test-fast: setup
	python -m pytest -n $(WORKERS) -q tests/config tests/data tests/engine tests/label_errors tests/nets tests/noise \
		tests/ops tests/partition tests/settings -m 'not browser and not workflow'

test: setup lint
	python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests on a one-node Slurm, which the script installs (Debian, as root) and stops. Not part of `make test`.
test-slurm: setup-cluster
	python tests/slurm/run.py

# Tests with real federations of processes: all take half an hour, TESTS selects some. Not part of `make test`.
test-flower: $(FLOWER)/installed
	$(FLOWER)/bin/python -m pytest $(or $(TESTS),tests/flower)

# Flower conflicts with some versions in requirements.lock, so it has its own environment. Other packages come from
# .venv
$(FLOWER)/installed: $(STAMP) requirements-flower.lock
	@rm -rf $(FLOWER)
	@$(PYTHON) -m venv $(FLOWER)
	@if command -v uv > /dev/null; then \
		uv pip install --quiet --python $(FLOWER)/bin/python --no-deps --require-hashes -r requirements-flower.lock; \
	else \
		$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-flower.lock; \
	fi
	@$(VENV)/bin/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		> $$($(FLOWER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/fednoise.pth
	@touch $(FLOWER)/installed

lint: setup
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile rules
	snakemake --lint
	fednoise schema --check
	python tests/support/count_pronouns.py

audit: setup
	fednoise audit
	@test ! -f dvc.lock || dvc status --quiet || { echo "audit: not all results are recorded with DVC: fednoise record"; exit 1; }

bench: setup
	python -m benchmarks

# The documentation as a site, build/site/index.html. Its tools have their own environment, without torch.
docs: $(DOCS)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict

$(DOCS)/installed: requirements-docs.lock
	@rm -rf $(DOCS)
	@$(PYTHON) -m venv $(DOCS)
	@if command -v uv > /dev/null; then \
		uv pip install --quiet --python $(DOCS)/bin/python --no-deps --require-hashes -r requirements-docs.lock; \
	else \
		$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock; \
	fi
	@touch $(DOCS)/installed
