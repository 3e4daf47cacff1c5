"""A user-space GPU compute runtime, with virtual GPUs that run the same command streams and machine code.

The interface is what this module exports: :func:`open` and :func:`discover`, the classes that devices hand
out, and the errors. Everything is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.api import Candidate as Candidate
    from ringfence.api import Device as Device
    from ringfence.api import discover as discover
    from ringfence.api import open as open
    from ringfence.errors import CompileError as CompileError
    from ringfence.errors import DeviceLost as DeviceLost
    from ringfence.errors import Disconnected as Disconnected
    from ringfence.errors import FaultReport as FaultReport
    from ringfence.errors import GpuFault as GpuFault
    from ringfence.errors import GpuHang as GpuHang
    from ringfence.errors import LaunchError as LaunchError
    from ringfence.errors import LeaseError as LeaseError
    from ringfence.errors import PackageError as PackageError
    from ringfence.errors import PortError as PortError
    from ringfence.errors import RingfenceError as RingfenceError
    from ringfence.errors import UnsupportedDevice as UnsupportedDevice
    from ringfence.errors import WaitTimeout as WaitTimeout
    from ringfence.hardware.adreno.program import AdrenoProgram as AdrenoProgram
    from ringfence.hardware.adreno.program import Argument as Argument
    from ringfence.hardware.adreno.qcom_cl import read_qcom_cl as read_qcom_cl
    from ringfence.runtime.copying import CopyPath as CopyPath
    from ringfence.runtime.copying import CopyResult as CopyResult
    from ringfence.runtime.graph import BoundGraph as BoundGraph
    from ringfence.runtime.graph import Graph as Graph
    from ringfence.runtime.memory import Buffer as Buffer
    from ringfence.runtime.memory import Ownership as Ownership
    from ringfence.runtime.program import Program as Program
    from ringfence.runtime.queue import State as State
    from ringfence.runtime.queue import Submission as Submission
    from ringfence.runtime.queue import Timings as Timings
    from ringfence.runtime.stream import BoundStream as BoundStream
    from ringfence.runtime.stream import Parameter as Parameter
    from ringfence.runtime.stream import Stream as Stream
    from ringfence.runtime.timeline import Point as Point
    from ringfence.runtime.timeline import Timeline as Timeline

__version__ = "0.1.0"

_EXPORTS = {
    "ringfence.api": ("Candidate", "Device", "discover", "open"),
    "ringfence.runtime.program": ("Program",),
    "ringfence.errors": (
        "CompileError",
        "DeviceLost",
        "Disconnected",
        "FaultReport",
        "GpuFault",
        "GpuHang",
        "LaunchError",
        "LeaseError",
        "PackageError",
        "PortError",
        "RingfenceError",
        "UnsupportedDevice",
        "WaitTimeout",
    ),
    "ringfence.hardware.adreno.program": ("AdrenoProgram", "Argument"),
    "ringfence.hardware.adreno.qcom_cl": ("read_qcom_cl",),
    "ringfence.runtime.copying": ("CopyPath", "CopyResult"),
    "ringfence.runtime.graph": ("BoundGraph", "Graph"),
    "ringfence.runtime.memory": ("Buffer", "Ownership"),
    "ringfence.runtime.queue": ("State", "Submission", "Timings"),
    "ringfence.runtime.stream": ("BoundStream", "Parameter", "Stream"),
    "ringfence.runtime.timeline": ("Point", "Timeline"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
