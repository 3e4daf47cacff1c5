"""Models to packages (:func:`compile_model`) and, in :mod:`ringfence.compile.kernels`, single kernels to
programs.

Importing this imports no compiler; models are compiled in a process of their own.
"""

from ringfence.compile.model import compile_model
from ringfence.compile.reference import run_reference

__all__ = ["compile_model", "run_reference"]
