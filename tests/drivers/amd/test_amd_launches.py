"""Programs, arguments, launches, streams, graphs, copies: the driver on a virtual gfx1100."""

from __future__ import annotations

import gc
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernels import FUNCTIONS, LOCAL, LOCAL_POINTERS, PRIVATE, SCALE, VARIABLE, build

import ringfence as rf
from ringfence.compile.opencl import compile_llvm_ir, compile_opencl
from ringfence.drivers.amd.device import AmdDevice
from ringfence.drivers.amd.program import DISPATCH_PACKET
from ringfence.hardware.amd import metadata as notes
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.hardware.amd.rdna import decode_program
from ringfence.virtual.machine import Machine

pytest.importorskip("ziglang")


def run_scale(
    device: rf.Device, values: np.ndarray[Any, Any], count: int, factor: float
) -> np.ndarray[Any, Any]:
    kernel = device.load(build(SCALE))["scale"]
    x, y = device.array(values, label="x"), device.zeros(values.size, np.float32, label="y")
    device.launch(kernel, y, x, factor, count, groups=-(-count // 64), local=64).wait()
    return y.numpy()


# ----- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 31, 32, 65, 1000])
def test_an_elementwise_kernel_of_any_size(device: rf.Device, count: int) -> None:
    values = np.random.default_rng(count).standard_normal(1024).astype(np.float32)
    expected = np.where(np.arange(1024) < count, values * np.float32(2.5), np.float32(0))
    assert (run_scale(device, values, count, 2.5) == expected).all()


def test_a_lone_kernel_is_launched_through_its_module(device: rf.Device) -> None:
    module = device.load(build(SCALE))
    x = device.array(np.ones(64, np.float32))
    device.launch(module, x, x, 3.0, 64, groups=1, local=64).wait()
    assert x.numpy().tolist() == [3.0] * 64


def test_the_same_bytes_are_loaded_once(device: rf.Device) -> None:
    first, second = device.load(build(SCALE)), device.load(build(SCALE))
    assert first is second
    first.free()
    assert device.load(build(SCALE)) is not first


def test_each_launch_has_its_arguments(device: rf.Device) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.array(np.ones(64, np.float32))
    outputs = [device.zeros(64, np.float32) for _ in range(12)]
    for factor, y in enumerate(outputs):
        device.launch(kernel, y, x, float(factor), 64, groups=1, local=64)
    assert [y.numpy()[63] for y in outputs] == list(range(12))


def test_local_memory_and_a_barrier(device: rf.Device) -> None:
    kernel = device.load(build(LOCAL, WORDS=256))["reverse"]
    y = device.zeros(512, np.uint32)
    device.launch(kernel, y, groups=2, local=256).wait()
    assert (y.numpy() == np.concatenate([np.arange(256)[::-1], 1000 + np.arange(256)[::-1]])).all()


def test_a_bound_chain_runs_frame_after_frame(device: rf.Device) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x, y, z = (device.zeros(256, np.float32) for _ in range(3))
    stream = device.record("chain").dispatch(kernel, (y, x, rf.Parameter("a"), 256), 4, 64)
    stream.barrier().timestamp(0).dispatch(kernel, (z, y, 0.5, 256), 4, 64).barrier().copy(x, z)
    bound = device.bind(stream, instances=2)
    x.copy_from(np.arange(256, dtype=np.float32))
    for _ in range(8):
        job = bound.submit(a=4.0)
    job.wait()
    assert (x.numpy() == np.arange(256, dtype=np.float32) * 2.0**8).all()
    assert len(job.timestamps) == 1 and 0 < job.timestamps[0] < (job.timings.gpu or 0)


def test_a_graph_is_replayed_with_other_inputs(device: rf.Device) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x, y, z = (device.zeros(64, np.float32) for _ in range(3))
    with device.capture() as graph:
        device.launch(kernel, y, rf.Parameter("x", x), 2.0, 64, groups=1, local=64)
        device.launch(kernel, z, y, 3.0, 64, groups=1, local=64)
    bound = graph.bind(instances=2)
    other = device.array(np.full(64, 7, np.float32))
    bound.replay(inputs={"x": other}).wait()
    assert z.numpy().tolist() == [42.0] * 64


def test_the_ring_wraps(machine: Machine) -> None:
    """4 KiB of ring are 256 submissions."""
    with rf.Device(AmdDevice(machine, ring_bytes=4096), "kfd") as device:
        kernel = device.load(build(SCALE))["scale"]
        x = device.array(np.ones(64, np.float32))
        for number in range(600):
            job = device.launch(kernel, x, x, -1.0, 64, groups=1, local=64)
            if number % 50 == 0:
                job.wait()
        assert x.numpy().tolist() == [1.0] * 64


def test_the_timeline_moves_while_work_goes_on(machine: Machine) -> None:
    with rf.Device(AmdDevice(machine, timeline_limit=5), "kfd") as device:
        kernel = device.load(build(SCALE))["scale"]
        x = device.array(np.ones(64, np.float32))
        for _ in range(23):
            job = device.launch(kernel, x, x, 2.0, 64, groups=1, local=64)
        assert x.numpy()[0] == 2.0**23
        assert job.point.timeline.moves == 5


# ----- hidden arguments, dispatch packet ------------------------------------------------------------


def test_the_dispatch_packet_tells_the_kernel_its_geometry(device: rf.Device) -> None:
    source = """
    kernel void packet(global uint* out) {
      const constant uint* p = (const constant uint*)__builtin_amdgcn_dispatch_ptr();
      for (int k = 0; k < 16; k++) out[k] = p[k];
    }
    """
    kernel = device.load(build(source))["packet"]
    out = device.zeros(16, np.uint32)
    device.launch(kernel, out, groups=(2, 3, 4), local=(8, 4, 2)).wait()
    packet = DISPATCH_PACKET.unpack(out.numpy().tobytes())
    assert packet[2:5] == (8, 4, 2)
    assert packet[6:9] == (16, 12, 8)
    assert packet[11] == kernel.code.gpu_address + kernel.kernel.descriptor_address
    assert packet[12] > 0, "the address of the arguments"


def test_hidden_arguments_follow_each_geometry(device: rf.Device) -> None:
    source = """
    kernel void sizes(global uint* out) {
      if (get_global_id(0) + get_global_id(1) + get_global_id(2)) return;
      for (int k = 0; k < 3; k++) {
        out[k] = get_num_groups(k); out[3 + k] = get_local_size(k); out[6 + k] = get_global_size(k);
      }
    }
    """
    kernel = device.load(build(source))["sizes"]
    out = device.zeros(9, np.uint32)
    for groups, local in (((2, 3, 4), (8, 4, 2)), ((5, 1, 1), (64, 1, 1))):
        device.launch(kernel, out, groups=groups, local=local).wait()
        total = [count * size for count, size in zip(groups, local)]
        assert out.numpy().tolist() == [*groups, *local, *total]


# ----- scratch memory -------------------------------------------------------------------------------


def spilled(words: int, count: int, n: int) -> np.ndarray[Any, Any]:
    i = np.arange(count, dtype=np.uint32)
    return i * 3 + (i * 7 + n) % words


def test_scratch_memory_grows_between_launches_and_old_streams_keep_theirs(device: rf.Device) -> None:
    small, large = (device.load(build(PRIVATE, WORDS=words))["spill"] for words in (65, 513))
    assert (small.private_bytes, large.private_bytes) >= (260, 2052)
    y, z = device.zeros(256, np.uint32), device.zeros(256, np.uint32)
    with device.capture() as graph:
        device.launch(small, y, 5, groups=4, local=64)
    bound = graph.bind()
    job = device.launch(large, z, 9, groups=4, local=64)
    assert job.stack_growth > 0
    assert (z.numpy() == spilled(513, 256, 9)).all()
    for _ in range(2):
        y.copy_from(np.zeros(256, np.uint32))
        bound.replay().wait()
        assert (y.numpy() == spilled(65, 256, 5)).all()
    assert device.launch(small, y, 5, groups=4, local=64).stack_growth == 0


def test_scratch_that_the_card_has_not_is_refused_with_the_sum(device: rf.Device) -> None:
    kernel = device.load(build(PRIVATE, WORDS=15000))["spill"]
    y = device.zeros(32, np.uint32)
    with pytest.raises(
        rf.LaunchError, match=r"'spill' has 60.* private memory .* 3072 waves of 64 .* 4294967296"
    ):
        device.launch(kernel, y, 0, groups=1, local=32)


def test_scratch_of_one_device_does_not_raise_that_of_another(machine: Machine, device: rf.Device) -> None:
    with rf.open("kfd:1", port=machine) as other:
        before = other.memory_bytes
        large = device.load(build(PRIVATE, WORDS=513))["spill"]
        device.launch(large, device.zeros(64, np.uint32), 0, groups=1, local=64).wait()
        assert other.memory_bytes == before


# ----- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_kernel_of_four_arguments_takes_four(device: rf.Device, count: int) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.zeros(64, np.float32)
    with pytest.raises(rf.LaunchError, match=f"takes 4 arguments, {count} were given"):
        device.launch(kernel, *(x, x, 1.0, 64, 0)[:count], groups=1, local=64)


def test_nine_arguments_and_no_less(device: rf.Device) -> None:
    names = "abcdefgh"
    source = f"""kernel void nine(global uint* out, {", ".join(f"uint {n}" for n in names)}) {{
      out[0] = {" + ".join(f"{k + 1}u * {n}" for k, n in enumerate(names))};
    }}"""
    kernel = device.load(build(source))["nine"]
    out = device.zeros(1, np.uint32)
    device.launch(kernel, out, *range(8), groups=1, local=1).wait()
    assert out.numpy()[0] == sum((k + 1) * k for k in range(8))
    with pytest.raises(rf.LaunchError, match="takes 9 arguments, 8 were given"):
        device.launch(kernel, out, *range(7), groups=1, local=1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**32, "does not fit uint32"),
        (-1, "does not fit uint32"),
        ("7", "uint32 wanted"),
        (None, "uint32 wanted"),
    ],
)
def test_scalars_are_checked(device: rf.Device, value: Any, message: str) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.zeros(64, np.float32)
    with pytest.raises(rf.LaunchError, match=message):
        device.launch(kernel, x, x, 1.0, value, groups=1, local=64)


def test_buffers_are_checked(machine: Machine, device: rf.Device) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.zeros(64, np.float32)
    with pytest.raises(rf.LaunchError, match="uses float32, the buffer holds int32"):
        device.launch(kernel, device.zeros(64, np.int32), x, 1.0, 64, groups=1, local=64)
    with pytest.raises(rf.LaunchError, match="not a multiple of 4"):
        odd = device.zeros(260, np.uint8).offset_view(1, 256)
        device.launch(kernel, odd, x, 1.0, 64, groups=1, local=64)
    with rf.open("kfd:1", port=machine) as other:
        with pytest.raises(rf.LaunchError, match="belongs to another device"):
            device.launch(kernel, other.zeros(64, np.float32), x, 1.0, 64, groups=1, local=64)
        with pytest.raises(rf.LaunchError, match="loaded on another device"):
            other.launch(kernel, x, x, 1.0, 64, groups=1, local=64)
    x.free()
    with pytest.raises(rf.LaunchError, match="was freed"):
        device.launch(kernel, x, x, 1.0, 64, groups=1, local=64)


@pytest.mark.parametrize(
    ("groups", "local", "message"),
    [
        (1, 1025, "1024"),
        (1, (33, 32, 1), "1056 threads"),
        (0, 64, "at least 1"),
        (1 << 26, 64, "2\\^32"),
        ((1, 1, 1, 1), 64, "dimensions"),
        (1, None, "local= is missing"),
    ],
)
def test_geometry_is_checked(device: rf.Device, groups: Any, local: Any, message: str) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.zeros(64, np.float32)
    with pytest.raises(rf.LaunchError, match=message):
        device.launch(kernel, x, x, 1.0, 64, groups=groups, local=local)


def test_a_grid_of_almost_2_to_the_32_work_items_is_accepted(device: rf.Device) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.zeros(64, np.float32)
    stream = device.record().dispatch(kernel, (x, x, 1.0, 64), (1 << 26) - 1, 64)
    assert len(stream.operations) == 1


@pytest.mark.parametrize(("words", "fits"), [(16384, True), (16385, False)])
def test_local_memory_up_to_its_limit(device: rf.Device, words: int, fits: bool) -> None:
    module = device.load(build(LOCAL, WORDS=words)) if fits else None
    if module is not None:
        y = device.zeros(64, np.uint32)
        device.launch(module["reverse"], y, groups=1, local=64).wait()
        assert y.numpy()[0] == 63
    else:
        with pytest.raises(rf.RingfenceError, match=r"65536|local memory"):
            device.load(build(LOCAL, WORDS=words))["reverse"]


def test_dynamic_local_memory_counts(device: rf.Device) -> None:
    module = device.load(build(LOCAL, WORDS=8192))
    assert module.kernel("reverse", dynamic_lds_bytes=32768).lds_bytes == 65536
    with pytest.raises(rf.PackageError, match="needs 65540 bytes of local memory"):
        module.kernel("reverse", dynamic_lds_bytes=32772)


@pytest.mark.parametrize("size", [5, 32])
@pytest.mark.parametrize("named", [True, False], ids=["by name", "by index"])
def test_pointers_to_local_memory_get_the_bytes_that_are_asked_for(
    device: rf.Device, size: int, named: bool
) -> None:
    places: tuple[Any, Any] = ("bytes", "words") if named else (1, 3)
    module = device.load(build(LOCAL_POINTERS))
    kernel = module.kernel("rotate", local_bytes={places[0]: size, places[1]: 8 * size})
    assert kernel.lds_bytes == 128 + -(-size // 8) * 8 + 8 * size  # the kernel's own, then each in its turn
    y = device.zeros(2 * size, np.uint32)
    device.launch(kernel, y, 3, groups=2, local=size).wait()
    turned = (np.arange(size, dtype=np.uint32) + 3) % size
    assert (y.numpy().reshape(2, size) == turned * 1_003_001).all()


def test_pointers_to_local_memory_in_a_replayed_graph(device: rf.Device) -> None:
    module = device.load(build(LOCAL_POINTERS))
    small, large = (
        module.kernel("rotate", local_bytes={"bytes": size, "words": 8 * size}) for size in (8, 32)
    )
    y, z = device.zeros(8, np.uint32), device.zeros(32, np.uint32)
    stream = device.record().dispatch(small, (y, 1), 1, 8).dispatch(large, (z, rf.Parameter("n")), 1, 32)
    bound = device.bind(stream)
    for n in (1, 7):
        bound.submit(n=n).wait()
        assert (y.numpy() == (np.arange(8) + 1) % 8 * 1_003_001).all()
        assert (z.numpy() == (np.arange(32) + n) % 32 * 1_003_001).all()


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (None, rf.LaunchError, "how many bytes bytes, words get"),
        ({"bytes": 32}, rf.LaunchError, "how many bytes words get"),
        ({"bytes": 32, "words": 256, "n": 4}, rf.LaunchError, "no pointer to local memory called 'n'"),
        ({"bytes": 0, "words": 256}, rf.LaunchError, "local memory of 'bytes' has 0 bytes"),
        ({"bytes": -1, "words": 256}, rf.LaunchError, "-1 is no number of bytes for the local memory of"),
        ({"bytes": [1], "words": 256}, rf.LaunchError, r"\[1\] is no number of bytes"),
        ({"bytes": True, "words": 256}, rf.LaunchError, "True is no number of bytes"),
        ([("bytes", 1)], rf.LaunchError, "maps names or numbers of arguments to bytes"),
        ((), rf.LaunchError, r"not \(\)"),
        ({"bytes": 1.5, "words": 256}, rf.LaunchError, "1.5 is no number of bytes"),
        ({"bytes": 32, "words": 65536 - 160 + 1}, rf.PackageError, "needs 65537 bytes of local memory"),
    ],
)
def test_sizes_of_local_memory_are_checked(
    device: rf.Device, sizes: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        device.load(build(LOCAL_POINTERS)).kernel("rotate", local_bytes=sizes)


@pytest.mark.parametrize("options", [(), ("-O0",), ("-O1",)])
def test_functions_from_a_table_need_nothing_of_a_runtime(
    device: rf.Device, options: tuple[str, ...]
) -> None:
    which = np.random.default_rng(3).integers(0, 4, 128, np.uint32)
    y = device.zeros(128, np.uint32)
    kernel = device.load(build(FUNCTIONS, options=options))["choose"]
    device.launch(kernel, y, device.array(which), groups=2, local=64).wait()
    x = np.arange(128, dtype=np.uint32) + np.arange(128, dtype=np.uint32) % 64
    assert (y.numpy() == np.choose(which, [x + 1, x * 2, x - 3, x * x])).all()


def test_sizes_of_local_memory_may_be_numpys(device: rf.Device) -> None:
    module = device.load(build(LOCAL_POINTERS))
    kernel = module.kernel("rotate", local_bytes={"bytes": np.int64(32), "words": np.uint8(255)})
    assert kernel is module.kernel("rotate", local_bytes={"bytes": 32, "words": 255})
    assert kernel is not module.kernel("rotate", local_bytes={"bytes": 32, "words": 255}, dynamic_lds_bytes=4)


@pytest.mark.parametrize("nbytes", [-1, 1.5, "4", True, None])
def test_bytes_of_dynamic_local_memory_are_a_whole_number(device: rf.Device, nbytes: Any) -> None:
    with pytest.raises(rf.LaunchError, match=f"{nbytes!r} is no number of bytes for dynamic local memory"):
        device.load(build(LOCAL, WORDS=64)).kernel("reverse", dynamic_lds_bytes=nbytes)
    kernel = device.load(build(LOCAL, WORDS=64)).kernel("reverse", dynamic_lds_bytes=np.int64(8))
    assert kernel.lds_bytes == 264


def test_a_program_has_variables_from_launch_to_launch(device: rf.Device) -> None:
    module = device.load(build(VARIABLE))
    y = device.zeros(4, np.uint32)
    for n in (0, 1, 0):
        device.launch(module["bump"], n, groups=2, local=64)
    device.launch(module["get"], y, groups=1, local=4).wait()
    assert (y.numpy() == 5 + 102).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_graph_keeps_the_order_of_launches_that_share_variables(seed: int) -> None:
    with rf.open(f"virtual:gfx1100?seed={seed}") as device:
        module = device.load(build(VARIABLE))
        y, z = device.zeros(4, np.uint32), device.zeros(4, np.uint32)
        with device.capture() as graph:
            for result in (y, z):
                device.launch(module["bump"], 1, groups=1, local=64)
                device.launch(module["get"], result, groups=1, local=4)
        graph.bind().replay().wait()
        assert (y.numpy() == 105).all() and (z.numpy() == 205).all()


def test_memory_of_code_without_variables_stays_read_only(device: rf.Device) -> None:
    assert device.load(build(SCALE)).code.mapping.readonly
    assert not device.load(build(VARIABLE)).code.mapping.readonly


def test_a_code_object_of_another_chip_is_refused(device: rf.Device) -> None:
    with pytest.raises(rf.PackageError, match="compiled for gfx1101, this device is a gfx1100"):
        device.load(build(SCALE, arch="gfx1101"))


def test_an_unknown_machine_number_is_refused(device: rf.Device) -> None:
    data = bytearray(build(SCALE))
    data[48] = 0xFE  # e_flags, EF_AMDGPU_MACH
    with pytest.raises(rf.PackageError, match="0xfe"):
        device.load(bytes(data))


def test_an_unknown_relocation_is_refused(device: rf.Device) -> None:
    data = build(SCALE)
    with pytest.raises(rf.PackageError):
        device.load(data[: len(data) // 2])


@pytest.mark.parametrize(
    "kind", ["hidden_printf_buffer", "hidden_hostcall_buffer", "hidden_heap_v1", "hidden_queue_ptr"]
)
def test_a_hidden_argument_that_cannot_be_supplied_is_named(device: rf.Device, kind: str) -> None:
    source = load_code_object(build(SCALE))
    kernel = source.kernels["scale"]
    assert kernel.metadata is not None
    arguments = tuple(
        notes.Argument(each.offset, each.size, notes.ArgumentKind(kind)) if each.value_kind.hidden else each
        for each in kernel.metadata.args
    )
    changed = {field: getattr(kernel.metadata, field) for field in kernel.metadata.__struct_fields__}
    metadata = notes.KernelMetadata(**(changed | {"args": arguments}))
    object_ = replace(source, kernels={"scale": replace(kernel, metadata=metadata)})
    with pytest.raises(rf.PackageError, match=kind):
        device.load(object_)["scale"]


@pytest.mark.parametrize(
    ("attribute", "most"),
    [
        ("", 256),
        ("__attribute__((amdgpu_flat_work_group_size(1, 1024))) ", 1024),
        ("__attribute__((reqd_work_group_size(32, 32, 1))) ", 1024),
    ],
)
def test_a_group_has_as_many_work_items_as_its_kernel_was_compiled_for(
    device: rf.Device, attribute: str, most: int
) -> None:
    module = device.load(build(attribute + "kernel void k(global int *y) { y[0] = 1; }"))
    metadata = module.source.kernel("k").metadata
    assert metadata is not None and metadata.max_flat_workgroup_size == most


def test_a_kernel_that_cannot_run_is_refused_when_it_is_taken(device: rf.Device) -> None:
    text = "define amdgpu_kernel void @k(ptr addrspace(1) %y) { store i32 1, ptr addrspace(1) %y ret void }"
    module = device.load(compile_llvm_ir(text))  # asks for all that a runtime may supply
    assert module.kernels == ("k",)
    with pytest.raises(rf.PackageError, match="kernel 'k' "):
        module["k"]


def test_a_kernel_that_does_not_exist_is_named(device: rf.Device) -> None:
    with pytest.raises(rf.PackageError, match="no kernel 'nope'; it has: scale"):
        device.load(build(SCALE))["nope"]


# ----- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 4096), (4, 100), (1, 999), (3, 1), (16, 4000)])
def test_kernel_copies_are_exact(device: rf.Device, offset: int, nbytes: int) -> None:
    source = np.random.default_rng(nbytes).integers(0, 256, 5000, np.uint8)
    x, y = device.array(source), device.zeros(5000, np.uint8)
    result = device.copy(y.offset_view(offset, nbytes), x.offset_view(offset, nbytes))
    assert result.path is rf.CopyPath.KERNEL
    expected = np.zeros(5000, np.uint8)
    expected[offset : offset + nbytes] = source[offset : offset + nbytes]
    assert (y.numpy() == expected).all()


@pytest.mark.parametrize("nbytes", [1, 4096, (2 << 20) + 4, (5 << 20) + 3])
def test_memory_that_the_cpu_does_not_reach_is_copied_through_the_hosts(
    device: rf.Device, nbytes: int
) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    x = device.array(data, cache="device")
    assert x.host_address is None
    assert (x.numpy() == data).all()
    out = np.zeros_like(data)
    result = device.copy(out, x)
    assert result.path is rf.CopyPath.STAGED and "does not reach" in result.reason
    assert (out == data).all()
    with pytest.raises(rf.LeaseError, match="not mapped into the CPU"):
        x.view()


def test_what_the_cpu_reads_and_writes_is_not_captured(device: rf.Device) -> None:
    x, y = (device.array(np.full(64, n, np.float32), cache="device") for n in (1, 2))
    with device.capture() as graph:
        device.copy(y, x)
        assert (y.numpy() == 2).all()
        x.copy_from(np.full(64, 3, np.float32))
        assert (device.array(np.full(64, 4, np.float32), cache="device").numpy() == 4).all()
        assert not device.zeros(64, np.float32, cache="device").numpy().any()
        device.copy(x, y)
    assert [node.label for node in graph.nodes] == ["copy", "copy"]
    graph.bind().replay().wait()
    assert (y.numpy() == 3).all()


def test_without_a_large_bar_everything_still_works_through_staging() -> None:
    with Machine(("gfx1100",), large_bar=False) as machine, rf.open("kfd", port=machine) as device:
        x = device.array(np.arange(1000, dtype=np.float32))
        assert x.host_address is None
        kernel = device.load(build(SCALE))["scale"]
        y = device.zeros(1000, np.float32)
        device.launch(kernel, y, x, 2.0, 1000, groups=16, local=64).wait()
        assert (y.numpy() == np.arange(1000) * 2).all()
        with pytest.raises(rf.PortError, match="no large BAR"):
            device.empty(16, np.float32, cache="writecombine")


# ----- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "count"), [(0, 64), (4, 1000), (4092, 33), (12, 1)])
def test_imported_memory_is_computed_on_in_place(device: rf.Device, offset: int, count: int) -> None:
    block = np.zeros(16384, np.uint8)
    start = -block.ctypes.data % 4096 + offset
    array = block[start : start + 4 * count].view(np.float32)
    array[:] = np.arange(count)
    kernel, y = device.load(build(SCALE))["scale"], device.import_array(array)
    device.launch(kernel, y, y, 3.0, count, groups=-(-count // 64), local=64).wait()
    assert (array == np.arange(count) * 3).all()
    assert block[:start].sum() + block[start + 4 * count :].sum() == 0


def test_imports_of_nothing_and_of_unmapped_memory_are_lease_errors(device: rf.Device) -> None:
    for pointer, nbytes in ((0, 64), (1 << 40, 0), (1 << 46, 4096)):
        with pytest.raises(rf.LeaseError):
            device.import_array(pointer, nbytes)


def test_running_out_of_memory_names_the_owners() -> None:
    with Machine(("gfx1100",), memory_bytes=128 << 20) as machine, rf.open("kfd", port=machine) as device:
        weights = device.empty(32 << 20, np.uint8, "weights")
        with pytest.raises(rf.PortError, match=f"ENOMEM.*{32 << 20} of 'weights'"):
            device.empty(100 << 20, np.uint8, "activations")
        weights.free()
        device.empty(32 << 20, np.uint8, "activations")


def test_opening_and_closing_a_hundred_times_leaks_nothing(machine: Machine) -> None:
    def once() -> None:
        with rf.open("kfd:0", port=machine) as device:
            run_scale(device, np.ones(64, np.float32), 64, 2.0)

    once()
    gc.collect()
    before = machine.live_objects()
    for _ in range(100):
        once()
    gc.collect()
    assert machine.live_objects() == before


def test_the_scalar_of_an_unknown_type_takes_bytes_of_its_size(device: rf.Device) -> None:
    source = """
    typedef struct { float scale; uint count; } Options;
    kernel void options(global float* out, Options options) { out[options.count] = options.scale; }
    """
    kernel = device.load(build(source))["options"]
    out = device.zeros(8, np.float32)
    device.launch(kernel, out, struct.pack("<fI", 2.5, 3), groups=1, local=1).wait()
    assert out.numpy()[3] == 2.5
    with pytest.raises(rf.LaunchError, match="does not fit 8 bytes"):
        device.launch(kernel, out, b"1234567", groups=1, local=1)


WORK_DIM = """
kernel void dims(global uint* out) {
  const constant ushort* packet = (const constant ushort*)__builtin_amdgcn_dispatch_ptr();
  if (get_global_linear_id() == 0) { out[0] = get_work_dim(); out[1] = packet[1]; }
}
"""


def test_a_kernel_is_told_how_many_dimensions_its_launch_has(device: rf.Device) -> None:
    kernel = device.load(build(WORK_DIM))["dims"]
    out = device.zeros(2, np.uint32)
    for groups, local, dimensions in ((2, 32, 1), ((2, 2), 32, 2), (2, (8, 2, 2), 3), ((1, 1, 1), 1, 3)):
        device.launch(kernel, out, groups=groups, local=local).wait()
        assert out.numpy().tolist() == [dimensions] * 2
    device.bind(device.record().dispatch(kernel, (out,), (2, 2), 8)).submit().wait()
    assert out.numpy().tolist() == [2, 2]


VECTOR = "kernel void total(global float* out, float4 v) { *out = v.x + v.y + v.z + v.w; }"
FOUR = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize("value", [FOUR, FOUR.tobytes(), FOUR.view("f4,f4,f4,f4")[0]])
def test_a_vector_by_value_is_an_array_a_structure_or_bytes(device: rf.Device, value: Any) -> None:
    kernel = device.load(build(VECTOR))["total"]
    out = device.zeros(1, np.float32)
    device.launch(kernel, out, value, groups=1, local=1).wait()
    assert out.numpy()[0] == 10.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "argument 1 'v' of program 'total': 16 bytes wanted, got int 5; give a numpy value"),
        (np.zeros(2, object), "16 bytes wanted, got ndarray"),
        (FOUR[:3], "does not fit 16 bytes"),
        (np.float32(1), "does not fit 16 bytes"),
    ],
)
def test_a_vector_by_value_is_nothing_else(device: rf.Device, value: Any, message: str) -> None:
    kernel = device.load(build(VECTOR))["total"]
    with pytest.raises(rf.LaunchError, match=message):
        device.launch(kernel, device.zeros(1, np.float32), value, groups=1, local=1)


def test_a_structure_by_value_can_be_a_parameter_wherever_it_lies(device: rf.Device) -> None:
    source = """
    typedef struct { uint a, b; } Pair;
    kernel void pairs(global uint* out, uint n, Pair pair, float4 v) {
      out[0] = n; out[1] = pair.a; out[2] = pair.b; out[3] = (uint)(v.x + 10 * v.w);
    }
    """
    kernel = device.load(build(source))["pairs"]
    out = device.zeros(4, np.uint32)
    parameters = (rf.Parameter("n"), rf.Parameter("pair", struct.pack("<II", 2, 3)), rf.Parameter("v"))
    bound = device.bind(device.record().dispatch(kernel, (out, *parameters), 1, 1))
    bound.submit(n=1, v=FOUR).wait()
    assert out.numpy().tolist() == [1, 2, 3, 41]
    bound.submit(n=7, pair=struct.pack("<II", 8, 9), v=FOUR[::-1]).wait()
    assert out.numpy().tolist() == [7, 8, 9, 14]


def test_opencl_c_is_compiled_for_the_device(device: rf.Device) -> None:
    kernel = device.compile(SCALE, "scale")
    x = device.array(np.ones(64, np.float32))
    device.launch(kernel, x, x, 3.0, 64, groups=1, local=64).wait()
    assert x.numpy()[0] == 3.0
    with pytest.raises(rf.CompileError, match="nonsense"):
        device.compile("kernel void k(global nonsense* p) {}")
    with pytest.raises(rf.PackageError, match="no kernel 'other'"):
        device.compile(SCALE, "other")


def test_kernels_of_wave64_run_with_waves_of_64(device: rf.Device) -> None:
    source = (
        "kernel void lanes(global uint* out) { out[get_global_id(0)] = __builtin_amdgcn_wavefrontsize(); }"
    )
    kernel = device.load(compile_opencl(source, wave=64)).kernel()
    out = device.zeros(96, np.uint32)
    device.launch(kernel, out, groups=1, local=96).wait()
    assert kernel.wave == 64 and out.numpy().tolist() == [64] * 96


SPEED_ONLY = ("s_clause", "s_delay_alu", "s_nop", "s_cbranch_execz")


def test_flipping_a_word_of_machine_code_changes_the_result_or_faults() -> None:
    data = build(SCALE)
    source = load_code_object(data)
    kernel = source.kernels["scale"]
    start = kernel.entry
    values = np.linspace(1, 2, 64, dtype=np.float32)
    expected = np.where(np.arange(64) < 48, 2 * values, np.float32(0))
    checked = 0
    for instruction in decode_program(source.image, start):
        if instruction.name == "s_endpgm":
            break
        if instruction.name in SPEED_ONLY:
            continue
        image = bytearray(source.image)
        image[instruction.pc : instruction.pc + 4] = (~instruction.words[0] & 0xFFFFFFFF).to_bytes(
            4, "little"
        )
        with rf.open("virtual:gfx1100") as device:
            x, y = device.array(values), device.zeros(64, np.float32)
            try:
                changed = device.load(replace(source, image=bytes(image)))["scale"]
                device.launch(changed, y, x, 2.0, 48, groups=1, local=64).wait()
                assert not (y.numpy() == expected).all(), instruction.text
            except rf.DeviceLost:
                pass
        checked += 1
    assert checked > 8
