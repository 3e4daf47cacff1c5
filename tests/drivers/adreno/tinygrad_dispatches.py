"""Run tinygrad's KGSL driver on a fake kernel, launch the same programs with ours, print what differs.

A script of its own, since tinygrad reads its environment when it is imported (``DEV=QCOM:IR3``, ``IMAGE``).
Prints one JSON object: counts, ``programs`` compared, and ``differences`` as [program, register or state,
tinygrad's value, ours].
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import tinygrad.runtime.ops_qcom as ops_qcom
from fake_kgsl import Dispatch, FakeKgsl
from tinygrad import Tensor, dtypes
from tinygrad.helpers import is_image_shape
from tinygrad.runtime.support.compiler_mesa import IR3Compiler
from tinygrad.runtime.support.hcq import FileIOInterface

import ringfence as rf
from ringfence.compile.ir3 import _extract
from ringfence.drivers.adreno.program import DESCRIPTOR_ADDRESS, constants_end
from ringfence.hardware.adreno import kgsl as facts
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.packets import StateBlock, StateType

CONSTANTS = StateBlock.CS_SHADER, StateType.CONSTANTS
DESCRIPTORS = (StateBlock.CS_TEX, StateType.CONSTANTS), (StateBlock.CS_SHADER, StateType.UAV)
# What these point to is compared instead: it is the loaded state.
ADDRESSES = (
    reg.SP_CS_BASE,
    reg.SP_CS_PVT_MEM_BASE,
    reg.SP_CS_SAMPLER_BASE,
    reg.SP_CS_TEXMEMOBJ_BASE,
    reg.SP_CS_UAV_BASE,
    reg.TPL1_CS_BORDER_COLOR_BASE,
)
ADDRESS_DWORDS = {register.OFFSET + half for register in ADDRESSES for half in (0, 1)}


class Node(FileIOInterface):
    """The file object that tinygrad talks to KGSL through."""

    kgsl = FakeKgsl()

    def __init__(self, path: str, flags: int = 0) -> None:
        self.fd = self.kgsl.open(path)

    def __del__(self) -> None:
        """Nothing: the fake dies with the process."""

    def ioctl(self, request: int, argument: Any) -> int:
        declared = facts.IOCTLS[request & 0xFF]
        assert request == declared.REQUEST
        self.kgsl.ioctl(self.fd, declared.from_buffer(argument))
        return 0

    def mmap(self, start: int, size: int, prot: int, flags: int, offset: int) -> int:
        address = self.kgsl.mmap(self.fd, size, offset)
        thing = self.kgsl.objects[offset >> 12]
        assert facts.MEMFLAGS.unpack(thing.flags)["USE_CPU_MAP"]
        thing.gpu = address
        return address

    @staticmethod
    def munmap(address: int, size: int) -> None:
        Node.kgsl.munmap(address, size)


@dataclass
class Launch:
    """A program that tinygrad launched, and the state at its dispatch."""

    elf: Any
    values: tuple[int, ...]
    dispatch: Dispatch


def record() -> list[Launch]:
    """Make tinygrad use the fake, and note every launch."""
    launches: list[Launch] = []
    ops_qcom.FileIOInterface = Node
    init, call = ops_qcom.QCOMProgram.__init__, ops_qcom.QCOMProgram.__call__

    def noting_init(self: Any, dev: Any, obj: Any) -> None:
        init(self, dev, obj)
        self.elf = obj

    def noting_call(self: Any, *bufs: Any, **options: Any) -> Any:
        result = call(self, *bufs, **options)
        launches.append(Launch(self.elf, options.get("vals", ()), Node.kgsl.dispatches[-1]))
        return result

    ops_qcom.QCOMProgram.__init__, ops_qcom.QCOMProgram.__call__ = noting_init, noting_call
    return launches


def work() -> None:
    """Kernels that use everything: spills in 64-bit division, local memory, images."""
    a, b = Tensor.ones(64, 64).contiguous().realize(), Tensor.ones(64, 64).contiguous().realize()
    (a + b).realize()
    (a @ b).realize()
    a.cast(dtypes.half).exp().realize()
    Tensor.ones(4096).contiguous().realize().sum().realize()
    wide = Tensor.ones(100, dtype=dtypes.int64).contiguous().realize()
    (wide // (wide + 3)).realize()


def compare(launch: Launch, device: rf.Device, kgsl: FakeKgsl) -> list[tuple[str, str, Any, Any]]:
    """Launch the same program with our driver; return what is not the same."""
    theirs = launch.dispatch
    local = tuple(theirs.field(reg.SP_CS_NDRANGE_0, f"LOCALSIZE{axis}") + 1 for axis in "XYZ")
    source, _ = _extract(launch.elf, written_images(launch.elf), "a630", None)
    args = [
        device.empty(max(64, int(np.prod(argument.shape or (1,)))) * 32, np.uint8).offset_view(0)
        if argument.kind != "scalar"
        else launch.values[0]
        for argument in source.arguments
    ]
    device.launch(device.load(source), *args, groups=theirs.groups, local=local).wait()
    ours = kgsl.dispatches[-1]
    found: list[tuple[str, Any, Any]] = []
    if theirs.groups != ours.groups:
        found.append(("groups", theirs.groups, ours.groups))
    for offset in sorted(theirs.registers.keys() - ADDRESS_DWORDS):
        pair = theirs.registers[offset], ours.registers.get(offset)
        if pair[0] != pair[1]:
            found.append((reg.register_name(offset), *pair))
    for key in theirs.state.keys() & ours.state.keys():
        pair = comparable(source, key, theirs.state[key]), comparable(source, key, ours.state[key])
        if pair[0] != pair[1]:
            found.append((f"{key[0].name} {key[1].name}", pair[0].hex(), pair[1].hex()))
    return [(launch.elf.name, *each) for each in found]


def written_images(elf: Any) -> frozenset[int]:
    """The slots of the images that become UAVs: tinygrad has the written images first."""
    variant = IR3Compiler.unpack_lib(elf.lib)[0]
    images = [slot for _, slot, _, shape in elf.signature if is_image_shape(shape)]
    return frozenset(images[: variant.num_uavs - variant.image_mapping.num_tex])


def comparable(source: Any, key: tuple[StateBlock, StateType], data: bytes) -> bytes:
    """State without addresses, which differ, and without what lies behind the constants."""
    masked = bytearray(data)
    if key == CONSTANTS:
        for argument in source.arguments:
            if argument.kind == "buffer":
                masked[argument.offset : argument.offset + 8] = bytes(8)
        return bytes(masked[: constants_end(source)])
    if key in DESCRIPTORS:
        count = len(source.textures if key == DESCRIPTORS[0] else source.uavs)
        for at in range(0, len(masked), 64):
            struct.pack_into("<Q", masked, at + DESCRIPTOR_ADDRESS, 0)
        return bytes(masked[: 64 * count])
    return bytes(masked)


def main() -> None:
    launches = record()
    work()
    kgsl = FakeKgsl()
    differences: list[Any] = []
    with rf.open("kgsl", port=kgsl) as device:
        for launch in launches:
            differences += compare(launch, device, kgsl)
    programs = sorted({launch.elf.name for launch in launches})
    images = sum(bool(launch.dispatch.field(reg.SP_CS_CONFIG, "NUAV")) for launch in launches)
    private = sum(bool(launch.dispatch.value(reg.SP_CS_PVT_MEM_PARAM)) for launch in launches)
    counts = {"launches": len(launches), "images": images, "private": private}
    json.dump({"programs": programs, **counts, "differences": differences}, sys.stdout)


if __name__ == "__main__":
    main()
