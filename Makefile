# Thin: every command here can be typed by hand inside .venv. Only Python >= 3.11, git and make are needed.
PYTHON ?= python3
CORES ?= all
# of the tests: one more than cores, since some wait for processes that they started; eight at most
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')
VENV := .venv
STAMP := $(VENV)/installed
CLUSTER := $(VENV)/cluster
DOCS := .venv-docs
FLOWER := .venv-flower
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# compiled files are written when a package is imported first; where that is switched off, each process would compile
# torch and the rest anew, which doubles its start
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-cluster reproduce smoke test test-fast test-slurm test-flower lint audit bench docs

setup: $(STAMP)

# uv if there is one, else pip; once, until the locked packages change. With --seed, pip is there either way
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

# what a cluster needs besides: docs/cluster.md
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

# every table and figure of the papers at test size, to see that all goes through
smoke: setup
	snakemake --cores $(CORES) papers --config scale=smoke

# what a contributor runs after each change: no Snakemake, no browser
test-fast: setup
	python -m pytest -n $(WORKERS) -q tests/config tests/data tests/engine tests/label_errors tests/nets tests/noise \
		tests/ops tests/partition tests/settings -m 'not browser and not workflow'

test: setup lint
	python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# on a Slurm of one node, which it installs (Debian, as root) and ends; not part of `make test`
test-slurm: setup-cluster
	python tests/slurm/run.py

# real federations of processes, half an hour, or the TESTS that are named; not part of `make test`
test-flower: $(FLOWER)/installed
	$(FLOWER)/bin/python -m pytest $(or $(TESTS),tests/flower)

# Flower does not go with some versions of requirements.lock, so it has an environment of its own. Other packages come
# from .venv
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

# the documentation as a site, build/site/index.html; its tools have an environment of their own and need no torch
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
