"""Kernels compiled from OpenCL C, run through ioctls, packets and machine code."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("ziglang")

from ringfence.compile.opencl import compile_opencl
from ringfence.hardware.amd.code_object import Kernel, load_code_object
from ringfence.hardware.amd.metadata import ArgumentKind
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.virtual.machine import LiveObjects, Machine
from virtual.amd.client import (
    ACQUIRE,
    FLUSH,
    HDP_FLUSH,
    WAVE32,
    WAVE64,
    Buffer,
    Client,
    Queue,
    dispatch,
    halves,
    indirect,
    op,
    release,
    sh,
)

Size = tuple[int, int, int]

SAXPY = """
__kernel void saxpy(__global float *y, __global const float *x, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] += a * x[i];
}
"""
REVERSE = """
__kernel void reverse(__global int *data, __local int *unused) {
    __local int copy[256];
    int i = get_local_id(0), n = get_local_size(0);
    copy[i] = data[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    data[get_global_id(0)] = copy[n - 1 - i];
}
""".replace(", __local int *unused", "")
PRIVATE = """
__kernel void lookup(__global int *data, int n) {
    int table[64];
    for (int k = 0; k < 64; k++) table[k] = k * n;
    int i = get_global_id(0);
    data[i] = table[data[i] & 63];
}
"""
STRAY = "__kernel void stray(__global int *data) { data[get_global_id(0) << 20] = 1; }"


class Place(NamedTuple):
    """An address to pass."""

    address: int


Values = tuple[int | float | Buffer | Place, ...]


class Loaded:
    """A kernel in memory of a client."""

    def __init__(self, client: Client, source: str, wave: int = 32) -> None:
        self.client = client
        code_object = load_code_object(compile_opencl(source, wave=wave))
        self.kernel: Kernel = code_object.kernel()
        self.image = client.buffer(len(code_object.image))
        self.image.write(bytes(code_object.at(self.image.address)))
        self.arguments = client.buffer()

    def launch(self, groups: Size, local: Size, *values: int | float | Buffer | Place) -> list[int]:
        """Return the packets of a launch."""
        self.arguments.write(self._block(groups, local, values))
        descriptor = self.kernel.descriptor
        rsrc2 = descriptor.rsrc2 | -(-descriptor.group_segment_fixed_size // 512) << 15
        return dispatch(
            self.image.address + self.kernel.entry,
            self.arguments.address,
            groups=groups,
            local=local,
            rsrc1=descriptor.rsrc1,
            rsrc2=rsrc2,
            initiator=WAVE32 if descriptor.wave == 32 else WAVE64,
            resource3=sh(0x2E28, descriptor.rsrc3),
            **self._scratch(descriptor.private_segment_fixed_size),
        )

    def _scratch(self, private: int) -> dict[str, list[int]]:
        if not private:
            return {}
        waves, size = 32, -(-private * 64 // 256)
        memory = self.client.buffer(6 * waves * size * 256)
        return {
            "ring": sh(0x2E18, waves | size << 12),
            "scratch": sh(0x2E10, *halves(memory.address >> 8)),
        }

    def _block(self, groups: Size, local: Size, values: Values) -> bytes:
        metadata = self.kernel.metadata
        assert metadata is not None
        block = bytearray(metadata.kernarg_segment_size)
        given = iter(values)
        for argument in metadata.args:
            value = self._hidden(argument.value_kind, groups, local)
            if not argument.value_kind.hidden:
                value = next(given)
            block[argument.offset : argument.offset + argument.size] = _packed(value, argument.size)
        return bytes(block)

    @staticmethod
    def _hidden(kind: ArgumentKind, groups: Size, local: Size) -> int:
        name = kind.value
        if "block_count" in name:
            return groups["xyz".index(name[-1])]
        if "group_size" in name:
            return local["xyz".index(name[-1])]
        return 3 if "grid_dims" in name else 0


def _packed(value: int | float | Buffer | Place, size: int) -> bytes:
    if isinstance(value, float):
        return struct.pack("<f", value)
    return (value if isinstance(value, int) else value.address).to_bytes(size, "little")


def array(buffer: Buffer, dtype: npt.DTypeLike, count: int) -> npt.NDArray:
    return np.frombuffer(buffer.read(np.dtype(dtype).itemsize * count), dtype)


@pytest.mark.parametrize("mode", ["inline", "async"])
@pytest.mark.parametrize("strict", [True, False])
def test_a_kernel_computes_what_it_says(mode: str, strict: bool):
    with Machine(("gfx1100",), mode=mode, strict=strict) as machine:
        client = Client(machine)
        queue, ib, kernel = Queue(client), client.buffer(), Loaded(client, SAXPY)
        x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
        xs, ys = client.buffer(), client.buffer()
        xs.write(x.tobytes())
        ys.write(y.tobytes())
        words = [*HDP_FLUSH, *ACQUIRE, *kernel.launch((4, 1, 1), (256, 1, 1), ys, xs, 3.0, 1000), *FLUSH]
        ib.words(words)
        for _ in range(2):
            queue.run(indirect(ib.address, len(words)))
        assert np.array_equal(array(ys, np.float32, 1000), 1 + 6 * x)
        assert (
            machine.executor("rdna").statistics.compilations + machine.executor("rdna").statistics.cache_hits
        )


def test_a_kernel_works_on_private_memory_of_the_client():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel = Queue(client), Loaded(client, SAXPY)
        pages = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(pages, np.float32)
        block = client.imported(array.ctypes.data, 8192)
        for turn in range(1, 4):
            array[:1024] = turn
            array[1024:] = 0
            ys = Place(block.address + 4096)
            queue.run(kernel.launch((4, 1, 1), (256, 1, 1), ys, block, 2.0, 1024))
            assert np.all(array[1024:] == 2 * turn) and np.all(array[:1024] == turn)
        block.free()


@pytest.mark.parametrize("wave", [32, 64])
def test_local_memory_and_barriers(wave: int):
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, REVERSE, wave), client.buffer()
        data.write(np.arange(512, dtype=np.int32).tobytes())
        queue.run(kernel.launch((2, 1, 1), (256, 1, 1), data))
        expected = np.arange(512).reshape(2, 256)[:, ::-1].ravel()
        assert np.array_equal(array(data, np.int32, 512), expected)


def test_private_memory():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, PRIVATE), client.buffer()
        assert kernel.kernel.descriptor.private_segment_fixed_size >= 256
        data.write(np.arange(64, dtype=np.int32).tobytes())
        queue.run(kernel.launch((2, 1, 1), (32, 1, 1), data, 5))
        assert np.array_equal(array(data, np.int32, 64), 5 * np.arange(64))


def test_a_stray_store_is_reported_with_program_instruction_lane_and_address():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, STRAY), client.buffer()
        queue.submit(kernel.launch((1, 1, 1), (32, 1, 1), data))
        payload = client.wait(failing=True)[1].memory_exception_data
        report = machine.explain(client.fd, queue.id)
        assert report is not None and report.kind == "memory"
        assert report.address == data.address + (4 << 20) and report.lane == 1
        assert report.instruction is not None and report.instruction.startswith("global_store")
        assert report.packet is not None and "DISPATCH_DIRECT" in report.packet
        assert payload.va == report.address and payload.failure.NotPresent == 1


def test_a_program_that_is_no_code_is_an_illegal_instruction():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, code = Queue(client), client.buffer()
        code.words([0xFFFFFFFF] * 16)
        report = queue.lost(dispatch(code.address))
        assert report.kind == "illegal instruction"


def test_timestamps_around_a_kernel_are_in_order_and_plausible():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel = Queue(client), Loaded(client, SAXPY)
        xs, ys, stamps = (client.buffer(1 << 20) for _ in range(3))
        launch = kernel.launch((512, 1, 1), (256, 1, 1), ys, xs, 3.0, 1 << 17)
        queue.run(launch)
        stamp = [release(stamps.address + 8 * i, data=3) for i in range(2)]
        before = machine.now()
        queue.run([*stamp[0], *launch, *FLUSH, *stamp[1]])
        first, second = stamps.u64() / 100e6, stamps.u64(8) / 100e6
        assert before <= first + 1e-8 and first < second <= machine.now()


def test_two_kernels_that_depend_on_each_other_need_the_flush():
    """Strict mode shows it: without one, some order is wrong for some seed."""
    results = set()
    for flush in (FLUSH, []):
        for seed in range(6):
            with Machine(("gfx1100",), seed=seed) as machine:
                client = Client(machine)
                queue, double, add = Queue(client), Loaded(client, SAXPY), Loaded(client, SAXPY)
                xs, ys = client.buffer(), client.buffer()
                ys.write(np.ones(64, np.float32).tobytes())
                xs.write(np.full(64, 5, np.float32).tobytes())
                size = (1, 1, 1), (64, 1, 1)
                words = [
                    *double.launch(*size, ys, ys, 1.0, 64),
                    *flush,
                    *add.launch(*size, ys, xs, 1.0, 64),
                    *FLUSH,
                ]
                queue.run(words)
                results.add((bool(flush), float(array(ys, np.float32, 1)[0])))
    assert results == {(True, 7.0), (False, 7.0), (False, 12.0)}


def test_functions_are_called_in_the_whole_object():
    source = """
    __attribute__((noinline)) static int twice(int x) { return 2 * x; }
    __attribute__((noinline)) static int thrice(int x) { return twice(x) + x; }
    __kernel void call(__global int *data) {
        int i = get_global_id(0);
        data[i] = data[i] & 1 ? twice(data[i]) : thrice(data[i]);
    }
    """
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, source), client.buffer()
        numbers = np.arange(32, dtype=np.int32)
        data.write(numbers.tobytes())
        queue.run(kernel.launch((1, 1, 1), (32, 1, 1), data))
        assert np.array_equal(array(data, np.int32, 32), numbers * np.where(numbers & 1, 2, 3))


def test_everything_is_released_in_the_end():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, REVERSE), client.buffer()
        queue.run(kernel.launch((1, 1, 1), (256, 1, 1), data))
        for buffer in (data, kernel.image, kernel.arguments):
            buffer.free()
        queue.destroy()
        client.unmap(client.page.handle)
        machine.munmap(client._doorbells, 0x2000)
        client.close()
        machine.munmap(client.page.address, client.page.size)
        assert machine.live_objects() == LiveObjects()


def test_dispatch_indirect_with_a_real_kernel():
    with Machine(("gfx1100",)) as machine:
        client = Client(machine)
        queue, kernel = Queue(client), Loaded(client, SAXPY)
        xs, ys, sizes = (client.buffer() for _ in range(3))
        xs.write(np.ones(256, np.float32).tobytes())
        sizes.words([2, 1, 1])
        words = kernel.launch((2, 1, 1), (64, 1, 1), ys, xs, 1.0, 256)
        queue.run([*words[:-5], *op(Opcode.DISPATCH_INDIRECT, *halves(sizes.address), WAVE32)])
        assert array(ys, np.float32, 256).tolist() == [1.0] * 128 + [0.0] * 128


def test_a_program_that_loops_for_ever_is_a_hang():
    source = "__kernel void loop(__global volatile int *data) { while (data[0] == 0) {} }"
    with Machine(("gfx1100",), hang_timeout=0.05) as machine:
        client = Client(machine)
        queue, kernel, data = Queue(client), Loaded(client, source), client.buffer()
        report = queue.lost(kernel.launch((1, 1, 1), (32, 1, 1), data))
        assert report.kind == "hang" and "it had run for 1.5 s" in report.message
