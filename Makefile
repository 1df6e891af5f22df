# Two commands for a fresh machine: `make demo` and `make test`. For contributors: `make check`.
# Everything stays inside this folder: the environment in .venv, generated data in .cache.

PYTHON ?= python3
VENV := .venv
FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
SITE := docs/_build/html
ASSETS := src/forgetscope/report/pages/assets docs/static
export FORGETSCOPE_CACHE ?= $(CURDIR)/.cache

.PHONY: demo docs test slow frameworks lint check torture claims benchmarks screenshots tutorials format clean

demo: $(VENV)/.user
	$(BIN)/forgetscope demo

# The site, without a network: half a minute. A warning, as of a link to nothing, ends it.
docs: $(VENV)/.dev
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env docs $(SITE)
	@echo "The site, to be opened in a browser: $(CURDIR)/$(SITE)/index.html; links that leave it: $(SITE)/external-links.txt"

test: $(VENV)/.dev
	$(BIN)/pytest -n 2 -m "not slow"

slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

# The integrations, with the frameworks themselves.
frameworks: $(FRAMEWORKS)/.ready
	$(FRAMEWORKS)/bin/python -m pytest -m slow tests/integrations

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if [ -x $(BIN)/oxlint ]; then $(BIN)/oxfmt --check $(ASSETS) && $(BIN)/oxlint --deny-warnings $(ASSETS); \
	else echo "Skipped: JavaScript and CSS, because there is no oxlint and oxfmt for this machine"; fi

check: lint test slow frameworks

# The fault campaigns at full size, a few hours; ONLY=crashes runs one row, ONLY="crowds space" two.
torture: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m torture $(ONLY)

# Are the verdicts on the paper's claims right? 200 simulated stores under each of 85 truths; STORES=20 for fewer.
claims: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m campaign $(STORES)

# Each script prints ratios of things measured in one run, on real images: CIFAR=FOLDER-OR-ARCHIVE names CIFAR-100 if it is not
# in the cache yet. More than half an hour; one of them: make benchmarks ONLY=probe.
BENCHMARKS := training probe monitor all_layers growth memory threads options augmentation snapshots breakdown engine analysis report

benchmarks: $(VENV)/.dev
ifdef CIFAR
	$(BIN)/forgetscope data get cifar100 --from $(CIFAR)
	$(BIN)/python benchmarks/conversion.py $(CIFAR)
endif
	for script in $(or $(ONLY),$(BENCHMARKS)); do echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

# The pictures in README and docs: of the replication that comes with the package, and of the demo, which is trained: one to three minutes.
screenshots: $(VENV)/.dev
	$(BIN)/python benchmarks/screenshots.py .cache/screenshots

# The pages of docs/tutorials, with what their files print and draw: some minutes; ONLY=own_loop makes one.
tutorials: $(VENV)/.dev $(FRAMEWORKS)/.ready
	$(FRAMEWORKS)/bin/python benchmarks/tutorials.py make $(ONLY)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	if [ -x $(BIN)/oxfmt ]; then $(BIN)/oxfmt $(ASSETS); fi

clean:
	rm -rf $(VENV) $(FRAMEWORKS) docs/_build .cache forgetscope-demo

$(VENV)/.user: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"forgetscope needs Python 3.11 or newer, but $(PYTHON) is {v[0]}.{v[1]}. Name another one: make demo PYTHON=python3.11")'
	@echo "Installing forgetscope and what it needs into $(VENV) (once, a few minutes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt hatchling editables
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.user
	@echo "Installing the test tools into $(VENV)"
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,docs,ray]'
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[web]' \
	|| echo "No oxlint and oxfmt for this machine: JavaScript and CSS will not be checked"
	@touch $@

# A layer above the other environment, which is not touched: there the linters would see the frameworks. torchvision comes without its
# requirements, which can be gigabytes of CUDA beside the torch that is there; wheel builds what comes as source, without isolation.
$(FRAMEWORKS)/.ready: $(VENV)/.dev constraints-frameworks.txt
	@echo "Installing Avalanche, Lightning and Hugging Face's Trainer into $(FRAMEWORKS) (once, a minute or two)"
	@$(PYTHON) -m venv $(FRAMEWORKS)
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	> "$$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@$(FRAMEWORKS)/bin/pip install --quiet --constraint constraints-frameworks.txt wheel
	@$(FRAMEWORKS)/bin/pip install --quiet --constraint constraints-frameworks.txt --no-deps torchvision
	@$(FRAMEWORKS)/bin/pip install --quiet --constraint constraints.txt --constraint constraints-frameworks.txt --no-build-isolation \
	--editable '.[avalanche,lightning,huggingface]'
	@touch $@
