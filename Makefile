# make lab    opens the first lesson (sets everything up when needed)
# make test   sets everything up when needed, then runs every test
# Without make (Windows): see README.md.

PYTHON ?= python3
CONSTRAINTS ?= --constraint constraints.txt
BIN := .venv/bin
READY := .venv/.ready
LESSON := $(firstword $(sort $(wildcard notebooks/*.ipynb)))

.PHONY: help setup lab build lint test clean

help:
	@sed -n 's/^# //p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11: name a newer one, such as make setup PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

lab: setup
	$(BIN)/jupyter lab $(LESSON)

build: setup
	$(BIN)/course build

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/course build --check

# The lessons compare their own outputs; the modules run side by side, one thread each.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile
	$(BIN)/pytest --nbval-lax --nbval-kernel-name python3 --nbval-cell-timeout 600 \
		--nbval-sanitize-with tests/nbval_sanitize.cfg notebooks solutions

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
