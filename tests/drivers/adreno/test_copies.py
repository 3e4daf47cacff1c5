"""Copies: which engine moves the bytes, and that it says so."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from fake_kgsl import Dispatch, FakeKgsl

import ringfence as rf
from ringfence.drivers.adreno.copy_programs import copy_element_bytes, copy_program
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import CHIPS, Chip, chip_by_name

A630 = chip_by_name("a630")


@pytest.fixture
def copying(kgsl: FakeKgsl) -> FakeKgsl:
    """The fake GPU, playing the copy programs."""

    def shader(dispatch: Dispatch, gpu: FakeKgsl) -> None:
        destination, source, count = struct.unpack_from("<QQi", dispatch.constants)
        code = gpu.read(dispatch.value(reg.SP_CS_BASE), 128)
        element = next(size for size in (1, 4, 16) if copy_program(size, A630).code[:128] == code)
        threads = dispatch.groups[0] * (dispatch.field(reg.SP_CS_NDRANGE_0, "LOCALSIZEX") + 1)
        assert threads >= count > threads - 64
        gpu.write(destination, gpu.read(source, count * element))

    kgsl.shader = shader
    return kgsl


def test_between_buffers_a_kernel_copies_and_says_why(copying: FakeKgsl, device: rf.Device) -> None:
    x, y = device.array(np.arange(100, dtype=np.float32)), device.zeros(100, np.float32)
    result = device.copy(y, x)
    assert result.path is rf.CopyPath.KERNEL
    assert "both sides are buffers" in result.reason and "no copy queue" in result.reason
    assert result.submission is not None
    result.wait(timeout=1.0)
    assert y.numpy().tolist() == list(range(100))


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, 1), (1, 7), (4, 4), (4, 20), (16, 64), (3, 1000), (0, 4096)]
)
def test_any_offset_and_size_is_copied_exactly(
    copying: FakeKgsl, device: rf.Device, offset: int, nbytes: int
) -> None:
    x, y = device.array(np.arange(5000, dtype=np.uint16)), device.zeros(10000, np.uint8)
    device.copy(y.offset_view(offset, nbytes), x.offset_view(2, nbytes)).wait()
    expected = np.zeros(10000, np.uint8)
    expected[offset : offset + nbytes] = np.arange(5000, dtype=np.uint16).view(np.uint8)[2 : 2 + nbytes]
    assert (y.numpy() == expected).all()


def test_cpu_memory_is_copied_by_the_cpu_after_waiting(kgsl: FakeKgsl, device: rf.Device) -> None:
    x = device.zeros(8, np.float32)
    values = np.arange(8, dtype=np.float32)
    result = device.copy(x, values)
    assert (result.path, result.submission) == (rf.CopyPath.HOST, None)
    assert result.reason.startswith("the source is CPU memory")
    back = np.zeros((2, 4), np.float32)
    assert device.copy(back, x).reason.startswith("the destination is CPU memory")
    assert back.ravel().tolist() == list(range(8))
    result.wait()


def test_a_host_copy_waits_for_the_gpu_first(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
    kgsl.hold = True
    device.copy(y, x)
    for destination, source in ((x, np.ones(8, np.float32)), (np.ones(8, np.float32), y)):
        with pytest.raises(rf.WaitTimeout):
            device.copy(destination, source, timeout=0.01)


def test_raw_bytes_are_copied_out_into_any_array(device: rf.Device) -> None:
    raw = device.array(np.arange(4, dtype=np.float32)).offset_view(0)
    out = np.zeros((2, 2), np.float32)
    device.copy(out, raw)
    assert out.tolist() == [[0, 1], [2, 3]]


def test_copies_that_make_no_sense_are_refused(device: rf.Device) -> None:
    x = device.zeros(8, np.float32, label="x")
    readonly = np.zeros(8, np.float32)
    readonly.flags.writeable = False
    cases = [
        (x, np.zeros(7, np.float32), "32 bytes, the source 28"),
        (x, device.zeros(9, np.float32), "use offset_view"),
        (x, x, "overlap"),
        (x.offset_view(0, 8), x.offset_view(4, 8), "overlap"),
        (x, np.zeros(4, np.float64), "float64"),
        (np.zeros(4, np.float64), x, "holds float32, the array float64"),
        (readonly, x, "read-only"),
        (np.zeros(2), np.zeros(2), "neither side is a buffer"),
        (np.zeros(0), np.zeros(0), "both sides are empty"),
        (x, [0.0] * 8, "list is neither a buffer nor a numpy array"),
    ]
    for destination, source, message in cases:
        with pytest.raises(rf.LaunchError, match=message):
            device.copy(destination, source)  # type: ignore[arg-type]


def test_sides_that_are_given_later_must_not_overlap_either(copying: FakeKgsl, device: rf.Device) -> None:
    x, y = device.array(np.arange(24, dtype=np.uint8)), device.zeros(8, np.uint8)
    with device.capture("net") as graph:
        device.copy(rf.Parameter("to", y), rf.Parameter("of", x.offset_view(0, 8)))
    stream = device.record("net").copy(rf.Parameter("to", y), rf.Parameter("of", x), 8)
    for replay in (graph.bind().replay, device.bind(stream).submit):
        for given in ({"to": x}, {"to": x.offset_view(4, 8)}, {"of": y}, {"to": x, "of": x.offset_view(4)}):
            with pytest.raises(rf.LaunchError, match=r"'net': with parameter .* copy of 8 bytes overlap"):
                replay(**given)
        replay().wait()
        assert y.numpy().tolist() == list(range(8))


def test_imports_of_the_same_cpu_memory_overlap(copying: FakeKgsl, device: rf.Device) -> None:
    array = np.zeros(12, np.uint8)
    low, high, end = (device.import_array(part) for part in (array[:8], array[4:], array[8:]))
    with pytest.raises(rf.LaunchError, match="overlap"):
        device.copy(high, low)
    device.copy(end, low.offset_view(0, 4)).wait()


def test_a_stream_copies_with_a_kernel(copying: FakeKgsl, device: rf.Device) -> None:
    x, y, z = (device.zeros(12, np.uint8) for _ in range(3))
    x.copy_from(np.arange(12, dtype=np.uint8))
    bound = device.bind(device.record().copy(y, x, 8).barrier().copy(z, y))
    bound.submit().wait()
    assert z.numpy().tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0]
    with pytest.raises(rf.LaunchError, match="does not lie inside"):
        device.record().copy(y, x, 13)
    with pytest.raises(rf.LaunchError, match="overlap"):
        device.record().copy(y, y)


def test_what_no_kernel_can_count_is_copied_on_the_cpu_and_says_so(
    kgsl: FakeKgsl, device: rf.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringfence.drivers.adreno import device as module

    monkeypatch.setattr(module, "MAX_COPY_ELEMENTS", 1)
    x, y = device.array(np.arange(8, dtype=np.float32)), device.zeros(8, np.float32)
    result = device.copy(y, x)
    assert result.path is rf.CopyPath.HOST
    assert "32 bytes at these addresses are more than 1 elements" in result.reason
    assert y.numpy().tolist() == list(range(8))
    with pytest.raises(rf.LaunchError, match=r"a stream copies with a kernel, but .*elements"):
        device.record().copy(y, x)


def test_foreign_memory_that_no_kernel_can_copy_is_refused(
    kgsl: FakeKgsl, device: rf.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringfence.drivers.adreno import device as module

    monkeypatch.setattr(module, "MAX_COPY_ELEMENTS", 1)
    kgsl.foreign.add(0x7000)
    foreign = device.import_array(0x7000, 32, may_be_gpu_address=True)
    with pytest.raises(rf.LaunchError, match="the CPU cannot reach"):
        device.copy(device.zeros(8, np.float32), foreign)


def test_the_widest_element_that_fits_is_used() -> None:
    assert copy_element_bytes(0x1000, 0x2000, 64) == 16
    assert copy_element_bytes(0x1004, 0x2008, 32) == 16
    assert copy_element_bytes(0x1000, 0x2000, 20) == 4
    assert copy_element_bytes(0x1001, 0x2000, 64) == 1
    assert copy_element_bytes(0x1000, 0x2002, 64) == 1
    assert copy_element_bytes(0x1000, 0x2000, 5) == 1


@pytest.mark.parametrize("element", [1, 4, 16])
def test_the_copy_programs_decode_to_what_their_comments_say(element: int) -> None:
    """The comments are the disassembly by Mesa; the decoder of this project must read the same."""
    import inspect

    from ringfence.drivers.adreno import copy_programs
    from ringfence.hardware.adreno.ir3 import decode_program

    source = inspect.getsource(copy_programs).split(f"_COPY_{element} = (")[1].split("\n)\n")[0]
    expected = [
        line.split("#", 1)[1].strip() for line in source.splitlines() if "  # " in line and "0x" in line
    ]
    decoded = [instruction.text for instruction in decode_program(copy_program(element, A630).code)]
    assert decoded[: len(expected)] == expected
    assert set(decoded[len(expected) :]) == {"nop"}


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
@pytest.mark.parametrize("element", [1, 4, 16])
def test_every_chip_runs_the_same_code_with_the_idle_instructions_that_it_needs(
    element: int, chip: Chip
) -> None:
    from ringfence.hardware.adreno.ir3 import decode_program

    program = copy_program(element, chip)
    names = [instruction.name for instruction in decode_program(program.code)]
    end = names.index("end")
    plain = [instruction.name for instruction in decode_program(copy_program(element, A630).code)]
    assert program.chip == chip.name and len(program.code) % 128 == 0
    assert names[end - 1 - chip.nops_after_prede : end] == ["prede"] + ["nop"] * chip.nops_after_prede
    assert names[: end - chip.nops_after_prede] == plain[: plain.index("end")]
