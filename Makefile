# Two commands for a fresh machine: `make demo` and `make test`. For contributors: `make check`.
# Everything stays inside this folder: the environment in .venv, generated data in .cache.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export FORGETSCOPE_CACHE ?= $(CURDIR)/.cache

.PHONY: demo test lint check torture benchmarks format clean

demo: $(VENV)/.user
	$(BIN)/forgetscope demo

test: $(VENV)/.dev
	$(BIN)/pytest

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

# The fault campaigns at full size, a few hours; ONLY=crashes runs one row, ONLY="crowds space" two.
torture: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m torture $(ONLY)

# Each script prints a ratio of two things measured in one run. CIFAR=FOLDER names CIFAR-100 as Parquet for those that need it.
benchmarks: $(VENV)/.dev
	$(BIN)/python benchmarks/augmentation.py
ifdef CIFAR
	$(BIN)/python benchmarks/conversion.py $(CIFAR)
else
	@echo "make benchmarks CIFAR=FOLDER-WITH-PARQUET also times the conversion of CIFAR-100."
endif

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .cache forgetscope-demo

$(VENV)/.user: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"forgetscope needs Python 3.11 or newer, but $(PYTHON) is {v[0]}.{v[1]}. Name another one: make demo PYTHON=python3.11")'
	@echo "Installing forgetscope and what it needs into $(VENV) (once, a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt hatchling editables
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.user
	@echo "Installing the test tools into $(VENV)"
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@
