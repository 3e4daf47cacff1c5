"""``run_amdgpu``: what it takes as code and memory, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ringfence.virtual
from ringfence.compile.opencl import compile_opencl
from ringfence.errors import GpuFault, GpuHang, LaunchError, PackageError, UnsupportedDevice
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.virtual import run_amdgpu
from ringfence.virtual.isa.rdna.arguments import argument_block
from ringfence.virtual.isa.rdna.executor import Executor
from ringfence.virtual.isa.rdna.run import RSRC2
from ringfence.virtual.memory import AddressSpace
from virtual.isa.rdna.harness import code
from virtual.isa.rdna.launch import launch

ARGUMENTS, DATA = 0x1000_0000, 0x2000_0000
STORE = ("s_load_b64 s[4:5], s[0:1], 0x0", "v_lshlrev_b32 v1, 2, v0", "v_add_nc_u32 v2, s2, v0",
         "s_waitcnt lgkmcnt(0)", "global_store_b32 v1, v2, s[4:5]", "s_endpgm")  # fmt: skip
"""Stores the number of the group plus the lane."""


def go(program: bytes | tuple[int, int], **changes: Any) -> Any:
    values: dict[str, Any] = {"groups": (1, 1, 1), "local": (32, 1, 1), "kernarg_address": ARGUMENTS}
    return run_amdgpu(program, "gfx1100", **{**values, **changes})


def memory() -> tuple[dict[int, Any], Any]:
    out = np.zeros(32, np.uint32)
    return {ARGUMENTS: np.array([DATA], np.uint64), DATA: out}, out


def test_bare_code_finds_its_arguments_and_group_in_the_first_registers(amd: Executor) -> None:
    arrays, out = memory()
    statistics = go(code(STORE), memory=arrays, executor=amd)
    assert out.tolist() == list(range(32))
    assert statistics.compilations + statistics.cache_hits >= 1


def test_bare_code_may_lie_in_memory(amd: Executor) -> None:
    arrays, out = memory()
    program = np.frombuffer(code(STORE), np.uint8)
    go((program.ctypes.data, program.nbytes), memory=arrays, executor=amd)
    assert out.tolist() == list(range(32))


def test_host_memory_is_reached_at_its_own_addresses(amd: Executor) -> None:
    out = np.zeros(32, np.uint32)
    arguments = np.array([out.ctypes.data], np.uint64)
    go(code(STORE), kernarg_address=arguments.ctypes.data, executor=amd)
    assert out.tolist() == list(range(32))


def test_an_address_space_is_left_as_it_was(amd: Executor) -> None:
    arrays, out = memory()
    space = AddressSpace()
    for address, array in arrays.items():
        space.map(address, array.nbytes, array.ctypes.data)
    before = space.table().tolist()
    go(code(STORE), memory=space, executor=amd)
    assert out.any() and space.table().tolist() == before


def test_an_executor_of_its_own_is_made_if_none_is_given() -> None:
    arrays, out = memory()
    go(code(STORE), memory=arrays)
    assert out.tolist() == list(range(32))


def test_registers_waves_and_memory_sizes_can_be_given(amd: Executor) -> None:
    lines = ["s_load_b64 s[4:5], s[2:3], 0x0", "v_lshlrev_b32 v1, 2, v0", "ds_store_b32 v1, v0 offset:2000",
             "scratch_store_b32 off, v0, off offset:60", "s_waitcnt lgkmcnt(0)",
             "global_store_b32 v1, v0, s[4:5]", "s_endpgm"]  # fmt: skip
    out = np.zeros(64, np.uint32)
    arrays = {ARGUMENTS: np.array([DATA], np.uint64), DATA: out}
    sizes = {"rsrc2": 4 << 1, "wave": 64, "local": (64, 1, 1), "scratch_bytes": 64, "lds_bytes": 2256}
    program = code(tuple(lines), 64)
    go(program, memory=arrays, executor=amd, user_data=(0, 0, ARGUMENTS, 0), **sizes)
    assert out.tolist() == list(range(64))
    with pytest.raises(GpuFault, match="private memory"):
        go(
            program,
            memory=arrays,
            executor=amd,
            user_data=(0, 0, ARGUMENTS, 0),
            **{**sizes, "scratch_bytes": 60},
        )
    with pytest.raises(GpuFault, match="local memory"):
        go(
            program,
            memory=arrays,
            executor=amd,
            user_data=(0, 0, ARGUMENTS, 0),
            **{**sizes, "lds_bytes": 2252},
        )


def test_rsrc1_says_what_happens_to_denormals(amd: Executor) -> None:
    lines = ["s_load_b64 s[4:5], s[0:1], 0x0", "v_lshlrev_b32 v1, 2, v0", "s_waitcnt lgkmcnt(0)",
             "v_add_f32 v2, 0, 0x100", "global_store_b32 v1, v2, s[4:5]", "s_endpgm"]  # fmt: skip
    lines[3:4] = ["v_mov_b32 v2, 0x100", "v_add_f32 v2, 0, v2"]
    for rsrc1, kept in ((None, True), (0x00AC0000, False)):
        arrays, out = memory()
        go(code(tuple(lines)), memory=arrays, executor=amd, rsrc1=rsrc1)
        assert out[0] == (0x100 if kept else 0)


KERNELS = """
typedef struct { ushort header, setup, size[3], reserved; uint grid[3]; } packet;
__kernel void first(__global uint *out) { out[get_global_id(0)] = 1; }
__kernel void second(__global uint *out, uint value) {
  __constant packet *launch = (__constant packet *)__builtin_amdgcn_dispatch_ptr();
  out[get_global_id(0)] = value + launch->size[0] + 1000 * launch->grid[0] + 1000000 * get_num_groups(0);
}
"""


def test_a_code_object_runs_by_the_name_of_its_kernel(amd: Executor) -> None:
    program, out = compile_opencl(KERNELS), np.zeros(64, np.uint32)
    launch(amd, program, (2, 1, 1), (32, 1, 1), out, kernel="first")
    assert (out == 1).all()
    launch(amd, program, (2, 1, 1), (32, 1, 1), out, np.uint32(7), kernel="second")
    assert (out == 7 + 32 + 64_000 + 2_000_000).all()


def test_a_kernel_that_is_not_there_is_named(amd: Executor) -> None:
    program = compile_opencl(KERNELS)
    with pytest.raises(PackageError, match="no kernel 'third'"):
        go(program, kernel="third", memory={}, executor=amd)


def test_faults_and_hangs_are_raised(amd: Executor) -> None:
    with pytest.raises(GpuFault, match="not mapped") as caught:
        go(code(STORE), memory={}, executor=amd)
    assert caught.value.report.address == ARGUMENTS
    with pytest.raises(GpuHang):
        go(code(("s_sethalt 1", "s_endpgm")), memory={}, executor=amd)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1030", "gfx1200", ""])
def test_other_gpus_are_refused(arch: str) -> None:
    with pytest.raises(UnsupportedDevice, match="gfx1100"):
        run_amdgpu(b"", arch, groups=(1, 1, 1), local=(1, 1, 1))


def test_a_code_object_for_another_gpu_is_refused(amd: Executor) -> None:
    program = compile_opencl(KERNELS)
    with pytest.raises(UnsupportedDevice, match="code object is for gfx1100, but gfx1102"):
        run_amdgpu(
            program, "gfx1102", groups=(1, 1, 1), local=(1, 1, 1), kernel="first", memory={}, executor=amd
        )


def test_a_damaged_code_object_is_refused(amd: Executor) -> None:
    with pytest.raises(PackageError):
        go(b"\x7fELF" + bytes(100), memory={}, executor=amd)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local": (33, 32, 1)}, "1 to 1024 work-items"),
        ({"local": (0, 1, 1)}, "1 to 1024 work-items"),
        ({"groups": (1, -1, 1)}, "groups"),
        ({"wave": 16}, "32 or 64 lanes, not 16"),
        ({"user_data": (1, 2, 3)}, "has room for 2"),
        ({"rsrc2": RSRC2 | 129 << 15}, "local memory of a work-group is 66048"),
        ({"memory": "device"}, "not 'device'"),
        ({"memory": {DATA: np.zeros((4, 4), np.uint32).T}}, "not contiguous"),
    ],
)
def test_launches_that_cannot_be_are_refused(amd: Executor, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        go(code(STORE), **{"memory": {}, "executor": amd, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": None}, "not NoneType"),
        ({"memory": [1]}, "not list"),
        ({"memory": {DATA: [1, 2]}}, "at GPU address 0x20000000 is no array, but list"),
        ({"memory": {"a": np.zeros(4)}}, "an address of memory is a whole number, not 'a'"),
        ({"memory": {-8: np.zeros(4)}}, "an address of memory is -8"),
        ({"memory": {DATA: np.zeros(0)}}, "cannot map 0 bytes"),
        ({"memory": {DATA: np.zeros(4), DATA + 8: np.zeros(4)}}, "overlaps"),
        ({"groups": (1 << 32, 1, 1)}, "groups is 4294967296"),
        ({"groups": (1 << 31, 1, 1)}, "at most 4294967295 work-items in each dimension"),
        ({"groups": (-1, 1, 1)}, "groups is -1"),
        ({"groups": (1, 1)}, "three dimensions"),
        ({"groups": 1}, "groups is a tuple of whole numbers, not 1"),
        ({"groups": (1.5, 1, 1)}, "groups is a whole number, not 1.5"),
        ({"local": (32, 1)}, "three dimensions"),
        ({"kernarg_address": -1}, "kernarg_address is -1"),
        ({"kernarg_address": 1 << 64}, "kernarg_address is 18446744073709551616"),
        ({"scratch_bytes": -1}, "scratch_bytes is -1"),
        ({"scratch_bytes": 131069}, "scratch_bytes is 131069; 0 to 0x1fffc"),
        ({"lds_bytes": -5}, "lds_bytes is -5"),
        ({"lds_bytes": 70000}, "lds_bytes is 70000; 0 to 0x10000"),
        ({"rsrc1": 1 << 40}, "rsrc1 is"),
        ({"rsrc2": -1}, "rsrc2 is -1"),
        ({"user_data": (-1,)}, "user_data is -1"),
    ],
)
def test_launches_that_cannot_be_are_refused_by_name(
    amd: Executor, changes: dict[str, Any], message: str
) -> None:
    for program in (code(STORE), compile_opencl(ADD)):
        with pytest.raises(LaunchError, match=message):
            go(program, **{"memory": {}, "executor": amd, **changes})


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"", "0 bytes of machine code"),
        (b"\0\1", "2 bytes of machine code; it is a multiple of 4"),
        (bytearray(6), "6 bytes of machine code"),
        ((ARGUMENTS, 10), "10 bytes of machine code"),
        ((ARGUMENTS,), "given as"),
        ((-4, 4), "address and size of code is -4"),
        ("text", "not str"),
        (None, "not NoneType"),
    ],
)
def test_what_is_no_code_is_refused(amd: Executor, program: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        go(program, memory={}, executor=amd)


def first_arguments(arrays: dict[int, Any]) -> dict[int, Any]:
    """Return memory for the kernel "first", whose block has its hidden arguments too."""
    metadata = load_code_object(compile_opencl(KERNELS)).kernel("first").metadata
    assert metadata is not None
    block = argument_block(metadata, (arrays[ARGUMENTS].tobytes(),), (1, 1, 1), (32, 1, 1))
    return {**arrays, ARGUMENTS: block}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_code_and_code_objects_are_any_bytes(amd: Executor, kind: Any) -> None:
    arrays, out = memory()
    go(kind(code(STORE)), memory=arrays, executor=amd)
    assert out.tolist() == list(range(32))
    go(kind(compile_opencl(KERNELS)), kernel="first", memory=first_arguments(arrays), executor=amd)
    assert (out == 1).all()


def test_a_launch_without_groups_runs_nothing(amd: Executor) -> None:
    arrays, out = memory()
    go(code(STORE), memory=arrays, executor=amd, groups=(1, 0, 1))
    assert not out.any()


def test_the_package_exports_it_lazily() -> None:
    assert ringfence.virtual.run_amdgpu is run_amdgpu


ADD = """
__kernel void add(__global int *out, int a, short b) {
  out[get_global_id(0)] = a + b + (int)get_num_groups(0);
}
"""


def block(*values: bytes) -> bytes:
    metadata = load_code_object(compile_opencl(ADD)).kernel().metadata
    assert metadata is not None
    return argument_block(metadata, values, (7, 2, 1), (64, 3, 1)).tobytes()


def test_an_argument_block_holds_what_is_given_and_what_the_launch_says() -> None:
    words = np.frombuffer(block(b"A" * 8, b"B" * 4, b"C" * 2), np.uint8)
    metadata = load_code_object(compile_opencl(ADD)).kernel().metadata
    assert metadata is not None and len(words) == metadata.kernarg_segment_size
    assert words[:14].tobytes() == b"A" * 8 + b"B" * 4 + b"C" * 2
    hidden = {a.value_kind.value: (a.offset, a.size) for a in metadata.args if a.value_kind.hidden}
    for kind, value in (
        ("hidden_block_count_x", 7),
        ("hidden_block_count_y", 2),
        ("hidden_group_size_x", 64),
        ("hidden_group_size_y", 3),
        ("hidden_remainder_x", 0),
        ("hidden_grid_dims", 3),
    ):
        offset, size = hidden[kind]
        assert int.from_bytes(words[offset : offset + size].tobytes(), "little") == value, kind


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ((b"A" * 8, b"B" * 4), "takes 3 arguments, 2 were given"),
        ((b"A" * 8, b"B" * 8, b"C" * 2), "argument a of kernel add has 4 bytes, 8 were given"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(values: tuple[bytes, ...], what: str) -> None:
    with pytest.raises(LaunchError, match=what):
        block(*values)
