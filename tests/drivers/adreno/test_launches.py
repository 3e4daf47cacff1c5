"""Launches: checks before anything is encoded, the state at the dispatch, argument blocks, private memory."""

from __future__ import annotations

import errno
import struct
import threading
from typing import Any

import numpy as np
import pytest
from fake_kgsl import Dispatch, FakeKgsl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import image_program, program

import ringfence as rf
from ringfence.drivers.adreno.encode import UNLIKE_TINYGRAD
from ringfence.hardware.adreno import kgsl as facts
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.descriptors import unpack_sampler, unpack_texture
from ringfence.hardware.adreno.packets import Opcode, StateBlock, StateType, Type4, decode_header
from ringfence.hardware.adreno.program import Argument

CONSTANTS = StateBlock.CS_SHADER, StateType.CONSTANTS


def launch(device: rf.Device, kgsl: FakeKgsl, source: Any, *args: Any, **geometry: Any) -> Dispatch:
    """Launch a program once and return the state at its dispatch."""
    geometry = geometry or {"groups": 1, "local": 64}
    device.launch(device.load(source), *args, **geometry).wait()
    return kgsl.dispatches[-1]


def scale_args(device: rf.Device) -> tuple[rf.Buffer, rf.Buffer, float]:
    return device.zeros(64, np.float32), device.zeros(64, np.float32), 2.0


def opcodes(words: list[int]) -> list[str]:
    """The names of the packets in a stream; register writes as ``reg``."""
    names, at = [], 0
    while at < len(words):
        header = decode_header(words[at])
        names.append("reg" if isinstance(header, Type4) else Opcode(header.opcode).name)
        at += 1 + header.count
    return names


# ----- loading ------------------------------------------------------------------------------------


def test_a_program_for_another_chip_is_refused_by_the_pair(device: rf.Device) -> None:
    with pytest.raises(rf.PackageError, match="'scale' was compiled for a660, this device is an a630"):
        device.load(program(chip="a660"))


def test_blobs_and_programs_load_alike(device: rf.Device) -> None:
    kernel = device.load(program().to_bytes(), label="mine")
    assert (kernel.name, kernel.label, len(kernel.specs)) == ("scale", "mine", 3)
    assert kernel["scale"] is kernel
    with pytest.raises(rf.LaunchError, match="no program 'other'"):
        kernel["other"]


def test_a_damaged_blob_is_refused_and_leaves_nothing(kgsl: FakeKgsl, device: rf.Device) -> None:
    before, blob = kgsl.live, bytearray(program().to_bytes())
    blob[60] ^= 1
    with pytest.raises(rf.PackageError, match="damaged"):
        device.load(bytes(blob))
    with pytest.raises(rf.PackageError, match="truncated"):
        device.load(bytes(blob[:20]))
    assert kgsl.live == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_bytes": 255 * 512 + 1}, "private bytes per thread"),
        ({"shared_bytes": 32769}, "bytes of local memory"),
        ({"branch_stack": 64}, "levels of branch stack"),
        ({"samplers": 17}, "samplers"),
        (
            {"full_registers": 48, "half_registers": 48, "local_size": (256, 1, 1)},
            r"local size of \(256, 1, 1\)",
        ),
        ({"arguments": (Argument(kind="scalar", dtype="bfloat16", size=2),)}, "bfloat16 are not supported"),
        ({"arguments": (Argument(kind="scalar", dtype="int16", size=4),)}, "int16 has 2 bytes, not 4"),
        (
            {"arguments": (Argument(kind="buffer", offset=0), Argument(kind="buffer", offset=4))},
            "arguments 0 and 1 overlap",
        ),
    ],
)
def test_programs_that_cannot_run_are_refused_when_they_are_loaded(
    kgsl: FakeKgsl, device: rf.Device, changes: dict[str, Any], message: str
) -> None:
    before = kgsl.live
    with pytest.raises(rf.PackageError, match=message):
        device.load(program(**changes))
    assert kgsl.live == before


def test_the_code_is_in_memory_that_the_program_counter_starts_at(kgsl: FakeKgsl, device: rf.Device) -> None:
    code = bytes(range(256)) * 2
    state = launch(device, kgsl, program(code=code), *scale_args(device))
    assert kgsl.read(state.value(reg.SP_CS_BASE), len(code)) == code
    assert state.state[StateBlock.CS_SHADER, StateType.SHADER] == code
    assert state.value(reg.SP_CS_PROGRAM_COUNTER_OFFSET) == 0


def test_the_instruction_size_counts_128_bytes(kgsl: FakeKgsl, device: rf.Device) -> None:
    state = launch(device, kgsl, program(code=bytes(5 * 128)), *scale_args(device))
    assert state.value(reg.SP_CS_INSTR_SIZE) == 5


def test_programs_beyond_1023_units_are_preloaded_as_far_as_the_packet_can_count(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    state = launch(device, kgsl, program(code=bytes(2000 * 128)), *scale_args(device))
    assert state.value(reg.SP_CS_INSTR_SIZE) == 2000
    assert len(state.state[StateBlock.CS_SHADER, StateType.SHADER]) == 1023 * 128


# ----- arguments ----------------------------------------------------------------------------------


def test_buffers_and_scalars_lie_where_the_program_expects_them(kgsl: FakeKgsl, device: rf.Device) -> None:
    y, x, _ = scale_args(device)
    constants = launch(device, kgsl, program(), y, x.offset_view(64), 2.5).constants
    assert struct.unpack_from("<QQf", constants) == (y.gpu_address, x.gpu_address + 64, 2.5)
    assert not any(constants[20:])
    assert len(constants) == 4096


SCALARS = {
    "int8": -5,
    "uint8": 250,
    "int16": -30000,
    "uint16": 60000,
    "int32": -(1 << 31),
    "uint32": (1 << 32) - 1,
    "int64": -(1 << 63),
    "uint64": (1 << 64) - 1,
    "float16": 1.5,
    "float32": 0.1,
    "float64": 0.1,
    "bool": True,
}


@pytest.mark.parametrize("dtype", SCALARS)
def test_scalars_of_every_width(kgsl: FakeKgsl, device: rf.Device, dtype: str) -> None:
    kind = np.dtype(dtype)
    argument = Argument(kind="scalar", dtype=dtype, offset=kind.itemsize, size=kind.itemsize)
    expected = np.array([0, SCALARS[dtype]], kind).tobytes()
    for value in (SCALARS[dtype], kind.type(SCALARS[dtype])):
        state = launch(device, kgsl, program(arguments=(argument,)), value)
        assert state.constants[: 2 * kind.itemsize] == expected


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int8", 128, "128 does not fit int8"),
        ("uint32", -1, "-1 does not fit uint32"),
        ("int64", 1 << 63, "does not fit int64"),
        ("int32", 1.0, "int32 wanted, got float 1.0"),
        ("float32", "1", "float32 wanted, got str '1'"),
        ("float32", 1e39, "1e[+]39 does not fit float32"),
        ("float16", 70000.0, "does not fit float16"),
        ("bool", 2, "bool wanted, got int 2"),
        ("uint32", None, "uint32 wanted, got NoneType"),
    ],
)
def test_scalars_that_do_not_fit_are_refused_by_name(
    device: rf.Device, kgsl: FakeKgsl, dtype: str, value: Any, message: str
) -> None:
    argument = Argument(kind="scalar", name="n", dtype=dtype, size=np.dtype(dtype).itemsize)
    with pytest.raises(rf.LaunchError, match=f"argument 0 'n' of program 'scale': .*{message}"):
        launch(device, kgsl, program(arguments=(argument,)), value)
    assert kgsl.sent(facts.GPU_COMMAND) == []


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_infinities_and_nan_are_floats(kgsl: FakeKgsl, device: rf.Device, value: float) -> None:
    argument = Argument(kind="scalar", dtype="float32", size=4)
    state = launch(device, kgsl, program(arguments=(argument,)), value)
    assert state.constants[:4] == np.float32(value).tobytes()


def test_the_argument_count_is_checked(device: rf.Device) -> None:
    kernel = device.load(program())
    y, x, a = scale_args(device)
    for args in ((), (y, x), (y, x, a, a)):
        with pytest.raises(rf.LaunchError, match=f"takes 3 arguments, {len(args)} were given"):
            device.launch(kernel, *args, groups=1, local=64)


def refuse(device: rf.Device, value: Any, message: str, source: Any = None, index: int = 0) -> None:
    args: list[Any] = list(scale_args(device))
    args[index] = value
    kernel = device.load(source or program())
    with pytest.raises(rf.LaunchError, match=message):
        device.launch(kernel, *args, groups=1, local=64)
    with pytest.raises(rf.LaunchError, match=message):
        device.record().dispatch(kernel, args, 1, 64)


def test_a_number_or_an_array_is_no_buffer(device: rf.Device) -> None:
    refuse(device, 5, "argument 0 'y' of program 'scale': a buffer is wanted, got int")
    refuse(device, np.zeros(4, np.float32), "got ndarray; make one with dev.array")


def test_a_buffer_of_another_type_is_refused(device: rf.Device) -> None:
    buffer = device.zeros(64, np.int32, label="ints")
    refuse(device, buffer, r"uses float32, the buffer holds int32: <Buffer 'ints'")


def test_raw_bytes_fit_any_buffer_argument(kgsl: FakeKgsl, device: rf.Device) -> None:
    _, x, a = scale_args(device)
    raw = device.empty(1024, np.uint8).offset_view(256, 256)
    state = launch(device, kgsl, program(), raw, x, a)
    assert struct.unpack_from("<Q", state.constants)[0] == raw.gpu_address


def test_a_misaligned_buffer_is_refused(device: rf.Device) -> None:
    raw = device.empty(1024, np.uint8).offset_view(2, 256)
    refuse(device, raw, "is not a multiple of 4")


def test_a_freed_buffer_is_refused(device: rf.Device) -> None:
    buffer = device.zeros(64, np.float32, label="old")
    buffer.free()
    refuse(device, buffer, "<Buffer 'old'.*was freed")


def test_a_buffer_of_another_device_is_refused(kgsl: FakeKgsl, device: rf.Device) -> None:
    with rf.open("kgsl", port=kgsl) as other:
        refuse(device, other.zeros(64, np.float32), "belongs to another device")


def test_a_program_of_another_device_or_a_freed_one_is_refused(kgsl: FakeKgsl, device: rf.Device) -> None:
    args = scale_args(device)
    with (
        rf.open("kgsl", port=kgsl) as other,
        pytest.raises(rf.LaunchError, match="was loaded on another device"),
    ):
        device.launch(other.load(program()), *args, groups=1, local=64)
    with pytest.raises(rf.LaunchError, match="bytes is not a program"):
        device.launch(program().to_bytes(), *args, groups=1, local=64)  # type: ignore[arg-type]
    kernel = device.load(program())
    kernel.free()
    with pytest.raises(rf.LaunchError, match="'scale' was freed"):
        device.launch(kernel, *args, groups=1, local=64)


def test_a_refused_launch_submits_nothing_and_the_next_one_is_right(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel = device.load(program())
    y, x, a = scale_args(device)
    device.launch(kernel, y, x, a, groups=1, local=64)
    submitted = kgsl.queued
    with pytest.raises(rf.LaunchError):
        device.launch(kernel, y, x, "no", groups=1, local=64)
    with pytest.raises(rf.LaunchError):
        device.launch(kernel, y, x, a, groups=1, local=4096)
    assert kgsl.queued == submitted
    device.launch(kernel, x, y, 3.0, groups=1, local=64)
    assert struct.unpack_from("<QQf", kgsl.dispatches[-1].constants) == (x.gpu_address, y.gpu_address, 3.0)


def test_immediates_and_gaps_survive_every_launch(kgsl: FakeKgsl, device: rf.Device) -> None:
    """Arguments at bytes 0 and 16 with immediates between and after them."""
    source = program(
        arguments=(
            Argument(kind="scalar", dtype="uint32", offset=16, size=4),
            Argument(kind="scalar", dtype="uint64", offset=0, size=8),
        ),
        immediates=struct.pack("<2I", 0x11, 0x22),
        immediates_offset=8,
    )
    kernel = device.load(source)
    for value in (1, 2):
        device.launch(kernel, value, value << 40, groups=1, local=1)
        assert struct.unpack_from("<Q3I", kgsl.dispatches[-1].constants) == (value << 40, 0x11, 0x22, value)


def test_the_local_size_is_a_driver_constant(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(program(local_size_offset=96))
    args = scale_args(device)
    for local in ((8, 4, 2), (16, 1, 1), (8, 4, 2)):
        device.launch(kernel, *args, groups=1, local=local)
        assert struct.unpack_from("<3I", kgsl.dispatches[-1].constants, 96) == local


# ----- images -------------------------------------------------------------------------------------


def image_args(device: rf.Device, shape: tuple[int, int] = (4, 16)) -> list[rf.Buffer]:
    height, width = shape
    return [
        device.zeros(height * width * 4, np.float16, label="out"),
        device.zeros(height * width * 4, np.float32, label="left"),
        device.zeros(height * width * 4, np.float16, label="right"),
        device.zeros(4, np.float32, label="bias"),
    ]


def test_images_go_to_the_slots_that_the_compiler_chose(kgsl: FakeKgsl, device: rf.Device) -> None:
    out, left, right, bias = args = image_args(device)
    state = launch(device, kgsl, image_program(), *args)
    textures = state.state[StateBlock.CS_TEX, StateType.CONSTANTS]
    uavs = state.state[StateBlock.CS_SHADER, StateType.UAV]
    assert [unpack_texture(textures[at : at + 64]).address for at in (0, 64)] == [
        right.gpu_address,
        left.gpu_address,
    ]
    assert unpack_texture(uavs).address == out.gpu_address
    assert struct.unpack_from("<Q", state.constants)[0] == bias.gpu_address


def test_descriptors_tell_size_pitch_and_format(kgsl: FakeKgsl, device: rf.Device) -> None:
    state = launch(device, kgsl, image_program(), *image_args(device))
    half = unpack_texture(state.state[StateBlock.CS_TEX, StateType.CONSTANTS][:64])
    full = unpack_texture(state.state[StateBlock.CS_TEX, StateType.CONSTANTS][64:])
    assert (half.width, half.height, half.pitch, half.format.name) == (16, 4, 128, "_16_16_16_16_FLOAT")
    assert (full.width, full.height, full.pitch, full.format.name) == (16, 4, 256, "_32_32_32_32_FLOAT")


def test_descriptor_counts_and_addresses_are_in_the_registers(kgsl: FakeKgsl, device: rf.Device) -> None:
    state = launch(device, kgsl, image_program(), *image_args(device))
    assert reg.SP_CS_CONFIG.unpack(state.value(reg.SP_CS_CONFIG)) | {"NTEX": 2, "NSAMP": 2, "NUAV": 1} == (
        reg.SP_CS_CONFIG.unpack(state.value(reg.SP_CS_CONFIG))
    )
    assert state.field(reg.SP_CS_CONFIG, "ENABLED") == 1
    for register, key in (
        (reg.SP_CS_TEXMEMOBJ_BASE, (StateBlock.CS_TEX, StateType.CONSTANTS)),
        (reg.SP_CS_UAV_BASE, (StateBlock.CS_SHADER, StateType.UAV)),
        (reg.SP_CS_SAMPLER_BASE, (StateBlock.CS_TEX, StateType.SHADER)),
    ):
        address = state.value(register)
        assert address % reg.ALIGNMENT[register] == 0
        assert kgsl.read(address, len(state.state[key])) == state.state[key]


def test_samplers_fetch_texels_and_the_border_is_zero(kgsl: FakeKgsl, device: rf.Device) -> None:
    state = launch(device, kgsl, image_program(), *image_args(device))
    samplers = state.state[StateBlock.CS_TEX, StateType.SHADER]
    assert len(samplers) == 32 and samplers[:16] == samplers[16:]
    sampler = unpack_sampler(samplers[:16])
    assert sampler.unnormalised and {wrap.name for wrap in sampler.wrap} == {"CLAMP_TO_BORDER"}
    border = state.value(reg.TPL1_CS_BORDER_COLOR_BASE)
    assert border % 128 == 0 and not any(kgsl.read(border, 4096))


def test_programs_without_images_load_none(kgsl: FakeKgsl, device: rf.Device) -> None:
    state = launch(device, kgsl, program(), *scale_args(device))
    assert set(state.state) == {CONSTANTS, (StateBlock.CS_SHADER, StateType.SHADER)}
    assert reg.SP_CS_UAV_BASE.OFFSET not in state.registers


def test_an_image_whose_rows_are_no_multiple_of_64_bytes_is_refused(device: rf.Device) -> None:
    kernel = device.load(image_program(shape=(4, 9)))
    args = [device.zeros(4 * 9 * 4, argument.dtype) for argument in kernel.source.arguments]
    with pytest.raises(
        rf.LaunchError, match=r"'right' of program 'images'.*rows of 72 bytes.*multiple of 64"
    ):
        device.launch(kernel, *args, groups=1, local=1)
    with pytest.raises(rf.LaunchError, match="rows of 72 bytes"):
        device.record().dispatch(kernel, args, 1, 1)


def test_an_image_in_too_small_or_misaligned_memory_is_refused(device: rf.Device) -> None:
    kernel, args = device.load(image_program()), image_args(device)
    small = device.zeros(255, np.float16, label="small")
    with pytest.raises(rf.LaunchError, match="512 bytes are needed, <Buffer 'small'"):
        device.launch(kernel, small, *args[1:], groups=1, local=1)
    odd = device.zeros(1024, np.float16).offset_view(32)
    with pytest.raises(rf.LaunchError, match="not a multiple of 64"):
        device.launch(kernel, odd, *args[1:], groups=1, local=1)


def test_constants_that_need_the_room_push_descriptors_behind_them(kgsl: FakeKgsl, device: rf.Device) -> None:
    arguments = (
        Argument(kind="image", name="out", dtype="float32", shape=(1, 4), written=True),
        Argument(kind="scalar", dtype="uint32", offset=4092, size=4),
    )
    source = program(arguments=arguments, uavs=(0,))
    image = device.zeros(16, np.float32)
    state = launch(device, kgsl, source, image, 0xABCD)
    assert struct.unpack_from("<I", state.constants, 4092) == (0xABCD,)
    uav = unpack_texture(state.state[StateBlock.CS_SHADER, StateType.UAV])
    assert (uav.address, uav.width) == (image.gpu_address, 4)


# ----- geometry -----------------------------------------------------------------------------------


def test_a_size_is_refused_even_if_it_equals_one_that_was_accepted(device: rf.Device) -> None:
    kernel, buffers = device.load(program()), [device.zeros(64, np.float32) for _ in range(2)]
    for fine in (1, (1, 1), np.int64(1), (np.int64(1), 1)):
        device.launch(kernel, *buffers, 1.0, groups=fine, local=8)
    for wrong in (1.0, True, (1.0, 1), (1, True), np.float32(1), (np.float64(1), 1)):
        with pytest.raises(rf.LaunchError, match="neither a whole number"):
            device.launch(kernel, *buffers, 1.0, groups=wrong, local=8)  # type: ignore[arg-type]


def test_the_geometry_is_in_registers_and_packet(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(program())
    args = scale_args(device)
    for groups, local in (((5, 3, 2), (8, 4, 2)), ((7, 1, 1), (64, 1, 1)), ((5, 3, 2), (8, 4, 2))):
        device.launch(kernel, *args, groups=groups, local=local)
        state = kgsl.dispatches[-1]
        assert state.groups == groups
        assert tuple(state.field(reg.SP_CS_NDRANGE_0, f"LOCALSIZE{axis}") + 1 for axis in "XYZ") == local
        assert state.field(reg.SP_CS_NDRANGE_0, "KERNELDIM") == 3
        sizes = (reg.SP_CS_NDRANGE_1, reg.SP_CS_NDRANGE_3, reg.SP_CS_NDRANGE_5)
        assert tuple(map(state.value, sizes)) == tuple(g * n for g, n in zip(groups, local))
        offsets = (reg.SP_CS_NDRANGE_2, reg.SP_CS_NDRANGE_4, reg.SP_CS_NDRANGE_6)
        assert tuple(map(state.value, offsets)) == (0, 0, 0)
        counts = (reg.SP_CS_KERNEL_GROUP_X, reg.SP_CS_KERNEL_GROUP_Y, reg.SP_CS_KERNEL_GROUP_Z)
        assert tuple(map(state.value, counts)) == groups


@pytest.mark.parametrize(
    ("full", "half", "threads"),
    [(1, 0, 1024), (12, 0, 1024), (13, 0, 896), (24, 0, 512), (10, 9, 768), (48, 48, 128)],
)
def test_registers_limit_the_threads_of_a_work_group(
    device: rf.Device, full: int, half: int, threads: int
) -> None:
    kernel = device.load(program(full_registers=full, half_registers=half))
    assert kernel.max_threads == threads
    args = scale_args(device)
    device.launch(kernel, *args, groups=1, local=(threads // 32, 32))
    with pytest.raises(rf.LaunchError, match=f"at most {threads} .*vec4 registers of a630"):
        device.launch(kernel, *args, groups=1, local=(threads // 32 + 1, 32))


def test_global_sizes_and_fixed_local_sizes(kgsl: FakeKgsl, device: rf.Device) -> None:
    args = scale_args(device)
    state = launch(device, kgsl, program(local_size=(32, 2, 1)), *args, global_size=(64, 8))
    assert state.groups == (2, 4, 1)
    with pytest.raises(rf.LaunchError, match="not a multiple"):
        launch(device, kgsl, program(), *args, global_size=100, local=64)


def test_a_geometry_may_change_from_launch_to_launch(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, x = device.load(program()), device.zeros(64, np.float32)
    groups = [1, 1]
    for size in (1, 2, 2, 3, 1):
        groups[0] = size
        device.launch(kernel, x, x, 1.0, groups=groups, local=8)
        device.launch(kernel, x, x, 1.0, groups=(size, 2), local=8)
    assert [dispatch.groups[0] for dispatch in kgsl.dispatches] == [1, 1, 2, 2, 2, 2, 3, 3, 1, 1]
    assert [dispatch.groups[1] for dispatch in kgsl.dispatches] == [1, 2] * 5


def test_launches_beyond_the_limits_encode_nothing(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, args = device.load(program()), scale_args(device)
    before = kgsl.live
    for geometry in (
        {"groups": 1 << 26, "local": 64},
        {"groups": (1, 1, 1 << 32), "local": 1},
        {"groups": 1, "local": (1, 1025)},
        {"groups": 0, "local": 64},
    ):
        with pytest.raises(rf.LaunchError):
            device.launch(kernel, *args, **geometry)
    assert kgsl.live == before and kgsl.queued == 0


# ----- the rest of the state ----------------------------------------------------------------------


def test_register_ids_footprints_and_modes(kgsl: FakeKgsl, device: rf.Device) -> None:
    source = program(
        full_registers=9, half_registers=5, branch_stack=3, local_id_register=4, shared_bytes=5000
    )
    state = launch(device, kgsl, source, *scale_args(device))
    control = reg.SP_CS_CNTL_0.unpack(state.value(reg.SP_CS_CNTL_0))
    assert {name: value for name, value in control.items() if value} == {
        "FULLREGFOOTPRINT": 9,
        "HALFREGFOOTPRINT": 5,
        "BRANCHSTACK": 3,
    }
    assert reg.SP_CS_CNTL_1.describe(state.value(reg.SP_CS_CNTL_1)) == (
        "SHARED_SIZE=4 CONSTANTRAMMODE=CONSTLEN_256"
    )
    assert reg.SP_CS_CONST_CONFIG_0.unpack(state.value(reg.SP_CS_CONST_CONFIG_0)) == {
        "WGIDCONSTID": 0xC0,
        "WGSIZECONSTID": 0xFC,
        "WGOFFSETCONSTID": 0xFC,
        "LOCALIDREGID": 4,
    }
    assert state.value(reg.SP_CS_WGE_CNTL) == 0xFC
    assert reg.SP_CS_CONST_CONFIG.describe(state.value(reg.SP_CS_CONST_CONFIG)) == "CONSTLEN=0x40 ENABLED=1"
    assert reg.SP_MODE_CNTL.describe(state.value(reg.SP_MODE_CNTL)) == (
        "CONSTANT_DEMOTION_ENABLE=1 ISAMMODE=ISAMMODE_GL"
    )


@pytest.mark.parametrize(("shared", "field"), [(0, 1), (1024, 1), (1025, 1), (2049, 2), (32768, 31)])
def test_local_memory_is_configured_in_kib_minus_one(
    kgsl: FakeKgsl, device: rf.Device, shared: int, field: int
) -> None:
    state = launch(device, kgsl, program(shared_bytes=shared), *scale_args(device))
    assert state.field(reg.SP_CS_CNTL_1, "SHARED_SIZE") == field


def test_wide_waves_and_merged_registers_are_the_programs_choice(kgsl: FakeKgsl, device: rf.Device) -> None:
    source = program(double_threads=True, merged_registers=True)
    state = launch(device, kgsl, source, *scale_args(device))
    assert state.field(reg.SP_CS_CNTL_0, "THREADSIZE") == reg.ThreadSize.THREAD128
    assert state.field(reg.SP_CS_CNTL_0, "MERGEDREGS") == 1
    assert state.field(reg.SP_CS_WGE_CNTL, "THREADSIZE") == reg.ThreadSize.THREAD128


def test_the_order_of_a_launch(kgsl: FakeKgsl, device: rf.Device) -> None:
    launch(device, kgsl, program(), *scale_args(device))
    time_stamp = ["WAIT_FOR_IDLE", "REG_TO_MEM", "WAIT_MEM_WRITES"]
    barrier = ["EVENT_WRITE", "EVENT_WRITE", "WAIT_MEM_WRITES", "WAIT_FOR_IDLE"]
    dispatch = ["SET_MARKER", *["reg"] * 8, "WAIT_FOR_IDLE", "reg", "reg"]
    dispatch += ["LOAD_STATE6_FRAG", "LOAD_STATE6_FRAG", "reg", "reg", "reg", "reg", "EXEC_CS", "EVENT_WRITE"]
    signal = ["WAIT_FOR_IDLE", "EVENT_WRITE", "EVENT_WRITE"]
    assert opcodes(kgsl.streams[-1]) == time_stamp + barrier + dispatch + time_stamp + signal


def test_differences_from_tinygrad_name_registers_and_reasons() -> None:
    names = {register.__name__ for register in reg.DECLARED}
    assert set(UNLIKE_TINYGRAD) <= names
    assert all("a6xx.xml" in why or "Mesa" in why for why in UNLIKE_TINYGRAD.values())


# ----- private memory -----------------------------------------------------------------------------


def allocations(kgsl: FakeKgsl) -> int:
    return len(kgsl.sent(facts.GPUOBJ_ALLOC))


def test_private_memory_is_in_units_per_thread_and_per_shader_processor(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    state = launch(device, kgsl, program(private_bytes=513), *scale_args(device))
    assert state.value(reg.SP_CS_PVT_MEM_PARAM) == 2
    assert state.value(reg.SP_CS_PVT_MEM_SIZE) == 2 * 512 * 2048 // 4096
    per_processor = 2 * 512 * 2048
    assert state.value(reg.SP_CS_PVT_MEM_STACK_OFFSET) == per_processor // 2048
    assert kgsl.host(state.value(reg.SP_CS_PVT_MEM_BASE), 2 * per_processor)


def test_private_memory_grows_only_when_a_program_needs_more(kgsl: FakeKgsl, device: rf.Device) -> None:
    small, large = device.load(program(private_bytes=512)), device.load(program(private_bytes=4096))
    args = scale_args(device)
    grown = [
        device.launch(kernel, *args, groups=1, local=8).stack_growth > 0
        for kernel in (small, small, large, small, large)
    ]
    assert grown == [True, False, True, False, False]


def test_growth_waits_for_the_gpu_and_is_a_stage_of_its_own(kgsl: FakeKgsl, device: rf.Device) -> None:
    args = scale_args(device)
    plain, hungry = device.load(program()), device.load(program(private_bytes=2048))
    device.launch(hungry, *args, groups=1, local=8).wait()
    kgsl.hold = True
    device.launch(plain, *args, groups=1, local=8)
    waits = kgsl.calls.count("DEVICE_WAITTIMESTAMP_CTXTID")
    larger = device.load(program(private_bytes=8192))
    original = kgsl._device_waittimestamp_ctxtid

    def wait(argument: facts.DEVICE_WAITTIMESTAMP_CTXTID) -> None:
        kgsl.clock += 0.25
        kgsl.release()
        original(argument)

    kgsl._device_waittimestamp_ctxtid = wait  # type: ignore[method-assign]
    job = device.launch(larger, *args, groups=1, local=8)
    job.wait()
    assert kgsl.calls.count("DEVICE_WAITTIMESTAMP_CTXTID") == waits + 1
    assert job.timings.stack_growth == pytest.approx(0.25, abs=0.01)
    assert job.timings.host_encode < 0.01


def test_the_old_private_memory_is_freed_and_prepared_launches_use_the_new_one(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    args = scale_args(device)
    small, large = device.load(program(private_bytes=512)), device.load(program(private_bytes=4096))
    device.launch(small, *args, groups=1, local=8).wait()
    before = kgsl.live["objects"]
    old = kgsl.dispatches[-1].value(reg.SP_CS_PVT_MEM_BASE)
    device.launch(large, *args, groups=1, local=8).wait()
    new = kgsl.dispatches[-1].value(reg.SP_CS_PVT_MEM_BASE)
    assert new != old
    assert kgsl.live["objects"] == before + 1, "only the prepared launches of the second program are more"
    for _ in range(20):
        device.launch(small, *args, groups=1, local=8)
        assert kgsl.dispatches[-1].value(reg.SP_CS_PVT_MEM_BASE) == new


def test_growth_that_fails_leaves_the_device_usable(kgsl: FakeKgsl, device: rf.Device) -> None:
    args, hungry, plain = scale_args(device), device.load(program(private_bytes=2048)), device.load(program())
    device.launch(plain, *args, groups=1, local=8).wait()
    kgsl.script["GPUOBJ_ALLOC"] = [0, errno.ENOMEM]  # the pool of the program, then its private memory
    with pytest.raises(rf.PortError, match="ENOMEM"):
        device.launch(hungry, *args, groups=1, local=8)
    kgsl.script.clear()
    device.launch(plain, *args, groups=1, local=8).wait()
    device.launch(hungry, *args, groups=1, local=8).wait()


# ----- prepared launches --------------------------------------------------------------------------


def test_repeated_launches_make_no_allocations_and_one_ioctl_each(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, args = device.load(program()), scale_args(device)
    device.launch(kernel, *args, groups=1, local=8).wait()
    kgsl.calls.clear()
    for _ in range(100):
        device.launch(kernel, *args, groups=1, local=8)
    assert kgsl.calls == ["fence", "GPU_COMMAND"] * 100


def test_every_launch_in_flight_has_its_own_arguments(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(program())
    y, x, _ = scale_args(device)
    kgsl.hold = True
    for value in range(40):
        device.launch(kernel, y, x, float(value), groups=value + 1, local=8)
    kgsl.release()
    device.synchronize()
    seen = [(struct.unpack_from("<f", d.constants, 16)[0], d.groups[0]) for d in kgsl.dispatches]
    assert seen == [(float(value), value + 1) for value in range(40)]


def test_a_launch_waits_with_a_deadline_when_everything_prepared_is_in_flight(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, args = device.load(program()), scale_args(device)
    kgsl.hold = True
    begin = kgsl.clock
    with pytest.raises(rf.WaitTimeout, match="within 5 s"):
        for _ in range(1000):
            device.launch(kernel, *args, groups=1, local=8)
    assert 5 <= kgsl.clock - begin < 6
    assert len(kgsl.pending) == 64
    kgsl.release()
    device.launch(kernel, *args, groups=1, local=8).wait()


def test_threads_may_launch_free_and_wait_at_the_same_time(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, errors, values = device.load(program()), [], []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                x = device.zeros(8, np.float32)
                job = device.launch(kernel, x, x, float(number), groups=number + 1, local=8)
                values.append(job.point.value)
                x.free()
                if turn % 7 == 0:
                    job.wait()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(values) == list(range(1, 241))
    seen = [(struct.unpack_from("<f", d.constants, 16)[0], d.groups[0]) for d in kgsl.dispatches]
    assert all(groups == value + 1 for value, groups in seen) and len(seen) == 240


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    launches=st.lists(
        st.tuples(
            st.integers(1, 5),
            st.sampled_from([1, 8, 64]),
            st.floats(width=32, allow_nan=False),
            st.booleans(),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_order_of_launches_and_waits_reaches_the_gpu_as_it_was_asked_for(
    device: rf.Device, kgsl: FakeKgsl, launches: list[tuple[int, int, float, bool]]
) -> None:
    kgsl.dispatches.clear()
    kernel = device.load(program())
    y, x, _ = scale_args(device)
    for groups, local, value, wait in launches:
        kgsl.hold = not wait
        job = device.launch(kernel, y, x, value, groups=groups, local=local)
        if wait:
            kgsl.release()
            job.wait()
    kgsl.release()
    device.synchronize()
    seen = [
        (
            d.groups[0],
            d.field(reg.SP_CS_NDRANGE_0, "LOCALSIZEX") + 1,
            struct.unpack_from("<f", d.constants, 16)[0],
        )
        for d in kgsl.dispatches
    ]
    assert seen == [(groups, local, value) for groups, local, value, _ in launches]
