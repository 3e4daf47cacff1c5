"""The plan of a package on tinygrad's CPU device: what the same launches compute without a GPU.

The kernels are the same graphs over the same buffers, with the same half-precision storage, work-groups and
order of operations (:mod:`ringfence.compile.host_kernels`); only their machine code is the host's. Bits
differ where a kernel needs an exponential, a logarithm or a sine. It separates errors of a GPU from those
that the plan itself makes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.compile.process import run
from ringfence.compile.request import Request
from ringfence.errors import CompileError
from ringfence.package.files import write_arrays
from ringfence.package.format import read_package


def run_reference(
    package: str | os.PathLike[str], model: str | os.PathLike[str], inputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the outputs of ``package`` for ``inputs``, computed on the host from the ONNX file it was
    compiled from.

    Needs the packages that compiling needs. :class:`CompileError` if the model is another one, was
    compiled by other versions, or the inputs do not have the package's names, shapes and dtypes.
    """
    with read_package(package) as opened:
        manifest = opened.manifest
    shapes = {tensor.name: tensor.shape for tensor in manifest.inputs}
    expected = {tensor.name: (tensor.shape, tensor.dtype) for tensor in manifest.inputs}
    given = {name: (value.shape, value.dtype.name) for name, value in inputs.items()}
    if expected != given:
        raise CompileError(f"{os.fspath(package)} takes inputs {expected}, not {given}")
    with tempfile.TemporaryDirectory(prefix="ringfence-reference-") as folder:
        source, result = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        write_arrays(source, inputs)
        request = Request(
            action="reference",
            model=str(Path(model).resolve()),
            output=str(result),
            target=manifest.target,
            image=manifest.image,
            float16=manifest.float16,
            input_shapes=shapes,
            inputs=str(source),
            package=str(Path(package).resolve()),
        )
        run(request, None)
        with np.load(result) as outputs:
            return dict(outputs)
