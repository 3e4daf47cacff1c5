"""Graphs on the driver: what a capture takes, what a replay patches, and what both refuse."""

from __future__ import annotations

import errno
import gc
import struct
import threading
from typing import Any

import numpy as np
import pytest
from fake_kgsl import Dispatch, FakeKgsl
from programs import image_program, program

import ringfence as rf
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.packets import Opcode, Type7, decode_header


def floats(device: rf.Device, count: int, label: str = "") -> list[rf.Buffer]:
    return [device.zeros(64, np.float32, label=label) for _ in range(count)]


def arguments(dispatch: Dispatch) -> tuple[int, int, float]:
    """y, x and a of a launch of ``program()``."""
    y, x, a = struct.unpack_from("<QQf", dispatch.constants)
    return y, x, a


def opcodes(words: list[int]) -> list[Opcode]:
    found, at = [], 0
    while at < len(words):
        header = decode_header(words[at])
        if isinstance(header, Type7):
            found.append(Opcode(header.opcode))
        at += 1 + header.count
    return found


def chain(device: rf.Device, x: Any, a: Any = 2.0) -> tuple[rf.Graph, list[rf.Buffer]]:
    """y = a x, z = 3 y."""
    kernel, (y, z) = device.load(program()), floats(device, 2)
    with device.capture("chain") as graph:
        device.launch(kernel, y, x, a, groups=1, local=8)
        device.launch(kernel, z, y, 3.0, groups=2, local=8)
    return graph, [y, z]


# ----- capturing ----------------------------------------------------------------------------------


def test_nothing_is_submitted_while_a_graph_is_captured(kgsl: FakeKgsl, device: rf.Device) -> None:
    graph, _ = chain(device, *floats(device, 1))
    assert kgsl.queued == 0
    assert [node.label for node in graph.nodes] == ["scale", "scale"]
    assert [node.barrier for node in graph.nodes] == [False, True]


def test_a_replay_does_what_the_launches_would_have_done(kgsl: FakeKgsl, device: rf.Device) -> None:
    (x,) = floats(device, 1)
    graph, (y, z) = chain(device, x)
    job = graph.bind().replay()
    job.wait()
    assert kgsl.queued == 1 and job.state == "host-visible"
    assert [arguments(dispatch) for dispatch in kgsl.dispatches] == [
        (y.gpu_address, x.gpu_address, 2.0),
        (z.gpu_address, y.gpu_address, 3.0),
    ]
    assert [dispatch.groups for dispatch in kgsl.dispatches] == [(1, 1, 1), (2, 1, 1)]


def test_after_the_block_launches_are_submitted_again(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    with pytest.raises(ZeroDivisionError), device.capture():
        device.launch(kernel, y, x, 1.0, groups=1, local=8)
        raise ZeroDivisionError
    device.launch(kernel, y, x, 1.0, groups=1, local=8).wait()
    assert kgsl.queued == 1


def test_only_the_thread_that_captures_is_captured(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    with device.capture() as graph:
        other = threading.Thread(
            target=device.launch, args=(kernel, y, x, 1.0), kwargs={"groups": 1, "local": 8}
        )
        other.start()
        other.join()
    assert kgsl.queued == 1 and graph.nodes == []


def test_threads_capture_side_by_side(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    graphs: list[rf.Graph] = []

    def capture() -> None:
        with device.capture("other") as graph:
            device.launch(kernel, y, x, 2.0, groups=1, local=8)
        graphs.append(graph)

    with device.capture("one") as graph:
        device.launch(kernel, y, x, 1.0, groups=1, local=8)
        other = threading.Thread(target=capture)
        other.start()
        other.join()
        device.launch(kernel, x, y, 1.0, groups=1, local=8)
    assert kgsl.queued == 0 and [len(graph.nodes) for graph in (graph, *graphs)] == [2, 1]
    graphs[0].bind().replay().wait()
    assert arguments(kgsl.dispatches[0])[2] == 2.0


def test_captures_do_not_nest(device: rf.Device) -> None:
    with device.capture(), pytest.raises(rf.LaunchError, match="captures do not nest"), device.capture():
        pass


def test_a_wrong_launch_is_refused_where_it_is_captured(device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    with device.capture() as graph:
        with pytest.raises(rf.LaunchError, match="takes 3 arguments, 2"):
            device.launch(kernel, x, y, groups=1, local=8)
        with pytest.raises(rf.LaunchError, match="holds int32"):
            device.launch(kernel, y, rf.Parameter("x", device.zeros(64, np.int32)), 1.0, groups=1, local=8)
    assert graph.nodes == []


def test_a_capture_has_nothing_to_wait_for(device: rf.Device) -> None:
    with device.capture(), pytest.raises(rf.LaunchError, match="nothing runs yet"):
        device.synchronize()


def test_copies_between_buffers_are_captured(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, y = floats(device, 2)
    with device.capture() as graph:
        result = device.copy(y, x)
        with pytest.raises(rf.LaunchError, match="outside of the capture"):
            device.copy(y, np.zeros(64, np.float32))
    assert result.path is rf.CopyPath.KERNEL and result.submission is not None
    assert result.submission.state == "encoded" and kgsl.queued == 0
    graph.bind().replay().wait()
    assert struct.unpack_from("<QQ", kgsl.dispatches[0].constants) == (y.gpu_address, x.gpu_address)


def test_parameters_mean_nothing_outside_a_capture(device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    with pytest.raises(rf.LaunchError, match="a buffer is wanted, got Parameter"):
        device.launch(kernel, y, rf.Parameter("x", x), 1.0, groups=1, local=8)
    with pytest.raises(rf.LaunchError, match="parameters are for graphs and streams"):
        device.copy(y, rf.Parameter("x", x))


# ----- barriers in the commands -------------------------------------------------------------------


def test_only_dependent_launches_are_kept_apart_on_the_gpu(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y, z, w) = device.load(program()), floats(device, 4)
    with device.capture() as graph:
        device.launch(kernel, y, x, 1.0, groups=1, local=8)
        device.launch(kernel, z, x, 1.0, groups=1, local=8)
        device.launch(kernel, w, y, 1.0, groups=1, local=8)
    graph.bind().replay()
    first, second, third = (i for i, op in enumerate(opcodes(kgsl.streams[0])) if op is Opcode.EXEC_CS)
    between = opcodes(kgsl.streams[0])
    assert Opcode.WAIT_FOR_IDLE not in between[first:second]
    assert Opcode.WAIT_FOR_IDLE in between[second:third]


@pytest.mark.parametrize("changes", [{"dialect": "opencl"}, {"private_bytes": 600}])
def test_launches_that_cannot_share_the_gpu_are_kept_apart_too(
    kgsl: FakeKgsl, device: rf.Device, changes: dict[str, Any]
) -> None:
    """Modes are common to all shader processors, private memory is laid out by its size per thread."""
    x, y, z = floats(device, 3)
    kernels = [
        device.load(program(private_bytes=100)),
        device.load(program(**{"private_bytes": 100, **changes})),
    ]
    with device.capture() as graph:
        for kernel, out in zip(kernels, (y, z)):
            device.launch(kernel, out, x, 1.0, groups=1, local=8)
    assert graph.barriers == 0
    stream = device.bind(_stream_of(device, graph))
    kgsl.hold = True
    stream.submit()
    address, size, _ = kgsl.pending[0]
    found = opcodes(list(struct.unpack(f"<{size // 4}I", kgsl.read(address, size))))
    first, second = (i for i, op in enumerate(found) if op in (Opcode.EXEC_CS, Opcode.RUN_OPENCL))
    assert Opcode.WAIT_FOR_IDLE in found[first:second]
    kgsl.pending.clear()
    kgsl.queued = kgsl.retired = 0
    device._driver.queue.timeline.submitted = 0


def _stream_of(device: rf.Device, graph: rf.Graph) -> rf.Stream:
    stream = device.record()
    stream.operations += [node.operation for node in graph.nodes]
    return stream


def test_modes_are_written_once_per_stream(kgsl: FakeKgsl, device: rf.Device) -> None:
    (x,) = floats(device, 1)
    graph, _ = chain(device, x)
    graph.bind().replay()
    at, writes = 0, 0
    words = kgsl.streams[0]
    while at < len(words):
        header = decode_header(words[at])
        writes += getattr(header, "register", None) == reg.SP_MODE_CNTL.OFFSET
        at += 1 + header.count
    assert writes == 1


# ----- parameters ---------------------------------------------------------------------------------


def test_inputs_and_scalars_can_be_given_at_each_replay(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, other = floats(device, 2)
    graph, (y, _) = chain(device, rf.Parameter("x", x), rf.Parameter("a", 2.0))
    bound = graph.bind(instances=2)
    assert bound.parameters == ("x", "a")
    for inputs, scalars, expected in (
        ({}, {}, (x, 2.0)),
        ({"x": other}, {}, (other, 2.0)),
        ({"x": other}, {"a": -1.5}, (other, -1.5)),
        ({"a": 4.0}, {}, (x, 4.0)),
        ({}, {}, (x, 2.0)),
    ):
        kgsl.dispatches.clear()
        bound.replay(inputs=inputs, **scalars).wait()
        buffer, factor = expected
        assert arguments(kgsl.dispatches[0]) == (y.gpu_address, buffer.gpu_address, factor)


def test_an_input_of_every_node_is_patched_everywhere(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, image = device.load(program()), device.load(image_program())
    x, other, bias = (device.zeros(256, np.float32) for _ in range(3))
    half = [device.zeros(256, np.float16) for _ in range(2)]
    with device.capture() as graph:
        for _ in range(3):
            device.launch(kernel, device.zeros(64, np.float32), rf.Parameter("x", x), 1.0, groups=1, local=8)
        device.launch(image, half[0], rf.Parameter("x", x), half[1], bias, groups=1, local=8)
        device.launch(kernel, device.zeros(64, np.float32), rf.Parameter("x", x), 1.0, groups=1, local=8)
    bound = graph.bind()
    for buffer in (other, x):
        kgsl.dispatches.clear()
        bound.replay({"x": buffer})
        plain = [dispatch for index, dispatch in enumerate(kgsl.dispatches) if index != 3]
        assert [arguments(dispatch)[1] for dispatch in plain] == [buffer.gpu_address] * 4
    with pytest.raises(rf.LaunchError, match="recorded with 1024 bytes"):
        bound.replay({"x": device.zeros(255, np.float32)})


def test_unknown_and_ill_fitting_inputs_are_refused(kgsl: FakeKgsl, device: rf.Device) -> None:
    (x,) = floats(device, 1)
    graph, _ = chain(device, rf.Parameter("x", x), rf.Parameter("a"))
    bound = graph.bind()
    freed = device.zeros(64, np.float32)
    freed.free()
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, r"takes the parameters \['a', 'x'\] \(x may be left out\), but \[\] were given"),
        ({"a": 1.0, "b": 2.0}, r"but \['a', 'b'\] were given"),
        ({"a": "no"}, "float32 wanted"),
        ({"a": 1.0, "x": device.zeros(64, np.int32)}, "holds int32"),
        ({"a": 1.0, "x": device.zeros(63, np.float32)}, "recorded with 256 bytes, .* is too small"),
        ({"a": 1.0, "x": freed}, "was freed"),
    ]
    for given, message in bad:
        with pytest.raises(rf.LaunchError, match=message):
            bound.replay(given)
    assert kgsl.queued == 0
    bound.replay(a=1.0).wait()


def test_a_value_is_given_once(kgsl: FakeKgsl, device: rf.Device) -> None:
    (x,) = floats(device, 1)
    graph, _ = chain(device, rf.Parameter("x", x), rf.Parameter("a", 1.0))
    bound = graph.bind()
    with pytest.raises(rf.LaunchError, match="graph 'chain': 'a' given twice"):
        bound.replay({"x": x, "a": 2.0}, a=3.0)
    assert kgsl.queued == 0
    bound.replay({"x": x}, a=3.0).wait()


def test_a_parameter_has_one_default(device: rf.Device) -> None:
    kernel, (x, y, z) = device.load(program()), floats(device, 3)
    with device.capture() as graph:
        device.launch(kernel, y, rf.Parameter("x", x), 1.0, groups=1, local=8)
        device.launch(kernel, y, rf.Parameter("x", z), 1.0, groups=1, local=8)
    with pytest.raises(rf.LaunchError, match="parameter 'x' already has another default"):
        graph.bind()


def test_sides_of_copies_can_be_given_at_each_replay(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, y, z = floats(device, 3)
    with device.capture() as graph:
        device.copy(rf.Parameter("to", y), rf.Parameter("frame", x))
    bound = graph.bind()
    other = device.zeros(64, np.int32)
    bound.replay({"frame": other, "to": z}).wait()
    assert struct.unpack_from("<QQ", kgsl.dispatches[0].constants) == (z.gpu_address, other.gpu_address)
    crooked = device.zeros(300, np.uint8).offset_view(2, 256)
    with pytest.raises(rf.LaunchError, match="is not a multiple of 4"):
        bound.replay({"frame": crooked})


def test_an_input_that_shares_bytes_with_the_graph_needs_its_barriers(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y, z) = device.load(program()), floats(device, 3)
    with device.capture("net") as graph:
        device.launch(kernel, y, x, 1.0, groups=1, local=8)
        device.launch(kernel, z, rf.Parameter("x", x), 1.0, groups=1, local=8)
    assert graph.barriers == 0
    bound = graph.bind()
    with pytest.raises(rf.LaunchError, match="graph 'net': with these inputs, node 'scale' uses bytes"):
        bound.replay({"x": y})
    assert kgsl.queued == 0
    for harmless in (x, *floats(device, 1)):
        bound.replay({"x": harmless}).wait()
    bound.replay({"x": z}).wait()  # in place: no other node touches z


def test_two_outputs_in_the_same_memory_need_a_barrier(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y, z) = device.load(program()), floats(device, 3)
    with device.capture() as graph:
        device.launch(kernel, rf.Parameter("y", y), x, 1.0, groups=1, local=8)
        device.launch(kernel, rf.Parameter("z", z), x, 1.0, groups=1, local=8)
    bound, (other,) = graph.bind(), floats(device, 1)
    for _ in range(2):
        bound.replay({"y": other}).wait()
        bound.replay({"y": z, "z": y}).wait()
        with pytest.raises(rf.LaunchError, match="no barrier was captured"):
            bound.replay({"y": other, "z": other})


def test_a_parameter_with_several_views_stands_for_the_bytes_of_all(device: rf.Device) -> None:
    kernel, (src, y, x, o1, o2) = device.load(program()), floats(device, 5)
    part = y.offset_view(0, 128, dtype=np.float32)
    with device.capture() as graph:
        device.launch(kernel, rf.Parameter("y", y), src, 1.0, groups=1, local=8)
        device.launch(kernel, o1, rf.Parameter("x", x.offset_view(0, 128)), 1.0, groups=1, local=8)
        device.launch(kernel, o2, rf.Parameter("y", part), 1.0, groups=1, local=8)
    assert [node.barrier for node in graph.nodes] == [False, False, True]
    bound = graph.bind()
    with pytest.raises(rf.LaunchError, match="no barrier was captured"):
        bound.replay({"x": y.offset_view(128, 128)})
    bound.replay({"x": y.offset_view(128, 128), "y": floats(device, 1)[0]}).wait()


def test_a_parameter_that_stays_is_used_as_it_was_captured(device: rf.Device) -> None:
    kernel, (src, y, x, o) = device.load(program()), floats(device, 4)
    low, high = y.offset_view(0, 128), y.offset_view(128, 128)
    with device.capture() as graph:
        device.launch(kernel, rf.Parameter("y", low), src, 1.0, groups=1, local=8)
        device.launch(kernel, high, rf.Parameter("x", x), 1.0, groups=1, local=8)
        device.launch(kernel, o, rf.Parameter("y", y), 1.0, groups=1, local=8)
    assert [node.barrier for node in graph.nodes] == [False, False, True]
    bound, (other,) = graph.bind(), floats(device, 1)
    bound.replay({"x": other}).wait()
    bound.replay({"x": other, "y": y}).wait()


def test_imported_frames_may_be_views_of_one_array(device: rf.Device) -> None:
    frames = np.zeros((4, 64), np.float32)
    buffers = [device.import_array(frame) for frame in frames]
    graph, _ = chain(device, rf.Parameter("x", buffers[0]))
    bound = graph.bind()
    for buffer in buffers:
        bound.replay({"x": buffer}).wait()


# ----- several in flight --------------------------------------------------------------------------


def test_with_two_instances_a_replay_does_not_disturb_the_one_before(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    buffers = floats(device, 3)
    graph, _ = chain(device, rf.Parameter("x", buffers[0]), rf.Parameter("a", 1.0))
    bound = graph.bind(instances=2)
    kgsl.hold = True
    for index, buffer in enumerate(buffers[:2]):
        bound.replay({"x": buffer}, a=float(index))
    with pytest.raises(rf.WaitTimeout):
        bound.replay({"x": buffers[2]}, a=2.0)
    kgsl.release()
    bound.replay({"x": buffers[2]}, a=2.0).wait()
    seen = [arguments(dispatch)[1:] for dispatch in kgsl.dispatches[::2]]
    assert seen == [(buffer.gpu_address, float(index)) for index, buffer in enumerate(buffers)]


def test_with_one_instance_a_replay_waits_for_the_one_before(kgsl: FakeKgsl, device: rf.Device) -> None:
    buffers = floats(device, 2)
    graph, _ = chain(device, rf.Parameter("x", buffers[0]))
    bound = graph.bind()
    kgsl.hold = True
    first = bound.replay()
    with pytest.raises(rf.WaitTimeout):
        bound.replay({"x": buffers[1]})
    kgsl.release()
    bound.replay({"x": buffers[1]}).wait()
    assert first.state == "gpu-complete"
    assert [arguments(d)[1] for d in kgsl.dispatches[::2]] == [buffer.gpu_address for buffer in buffers]


# ----- time stamps, waits, signals ----------------------------------------------------------------


def test_each_node_can_be_timed(device: rf.Device) -> None:
    graph, _ = chain(device, *floats(device, 1))
    bound = graph.bind(timestamps=True)
    job = bound.replay()
    job.wait()
    seconds = bound.node_seconds(job)
    assert len(seconds) == 2 and all(s > 0 for s in seconds)
    assert sum(seconds) <= (job.timings.gpu or 0.0) + 1e-9
    with pytest.raises(rf.LaunchError, match="without timestamps=True"):
        graph.bind().node_seconds(job)


def test_nodes_of_a_complete_replay_are_timed_without_a_wait(kgsl: FakeKgsl, device: rf.Device) -> None:
    graph, _ = chain(device, *floats(device, 1))
    bound = graph.bind(timestamps=True)
    kgsl.hold = True
    job = bound.replay()
    with pytest.raises(rf.LaunchError, match=r"submitted, point 1 .* is not complete"):
        bound.node_seconds(job)
    kgsl.release()
    assert job.state == "gpu-complete" and len(bound.node_seconds(job)) == 2
    before, _ = bound.node_seconds(job), bound.replay().wait()
    assert bound.node_seconds(job) == before


def test_only_its_own_replays_are_timed_by_a_graph(device: rf.Device) -> None:
    graph, (y, z) = chain(device, *floats(device, 1))
    bound, other = graph.bind(timestamps=True), graph.bind(timestamps=True)
    for job in (other.replay(), device.copy(y, z).submission, None):
        with pytest.raises(rf.LaunchError, match="is no replay of this bound graph"):
            bound.node_seconds(job)  # type: ignore[arg-type]


def test_a_graph_waits_for_and_signals_points(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    half = device.timeline("half")
    with rf.open("kgsl", port=kgsl) as camera:
        frame = camera.bind(camera.record("frame")).submit()
        with device.capture() as graph:
            graph.wait(frame.point)
            device.launch(kernel, y, x, 1.0, groups=1, local=8)
            graph.signal(half)
        job = graph.bind().replay()
        job.wait()
    assert job.points[half].value == 1 and job.points[half].reached
    assert [node.barrier for node in graph.nodes] == [False, True, False]


# ----- lifetimes ----------------------------------------------------------------------------------


def test_everything_that_a_graph_uses_stays_mapped_as_long_as_it_is_bound(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    with device.capture() as graph:
        device.launch(kernel, y, rf.Parameter("x", x), 1.0, groups=1, local=8)
    bound = graph.bind()
    before = kgsl.live["objects"]
    for thing in (x, y, kernel):
        thing.free()
    bound.replay().wait()
    assert kgsl.live["objects"] == before
    assert arguments(kgsl.dispatches[0])[:2] == (y.gpu_address, x.gpu_address)
    bound.free()
    assert kgsl.live["objects"] == before - 4
    with pytest.raises(rf.LaunchError, match="was freed"):
        bound.replay()


def test_binding_after_something_was_freed_is_refused(device: rf.Device) -> None:
    (x,) = floats(device, 1)
    graph, _ = chain(device, x)
    x.free()
    with pytest.raises(rf.LaunchError, match="was freed meanwhile"):
        graph.bind()


def test_private_memory_is_reserved_when_a_graph_is_bound(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program(private_bytes=5000)), floats(device, 2)
    with device.capture() as graph:
        device.launch(kernel, y, x, 1.0, groups=1, local=8)
    allocated = device.memory_bytes
    bound = graph.bind()
    grown = device.memory_bytes
    assert grown - allocated > 5000 * 64
    bound.replay().wait()
    assert device.memory_bytes == grown


@pytest.mark.parametrize("call", ["GPUOBJ_ALLOC", "mmap", "GPUOBJ_INFO"])
def test_a_failed_bind_leaves_nothing_behind(kgsl: FakeKgsl, device: rf.Device, call: str) -> None:
    graph, _ = chain(device, *floats(device, 1))
    before = kgsl.live
    kgsl.script[call] = [errno.ENOMEM]
    with pytest.raises(rf.PortError, match="ENOMEM"):
        graph.bind()
    assert kgsl.live == before


def test_capturing_binding_and_replaying_again_and_again_leaks_nothing(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)

    def once() -> None:
        with device.capture() as graph:
            device.launch(kernel, y, rf.Parameter("x", x), 1.0, groups=1, local=8)
            device.copy(x, y)
        bound = graph.bind(instances=2)
        bound.replay().wait()
        bound.free()

    once()
    device.synchronize()
    before = kgsl.live
    for _ in range(200):
        once()
        kgsl.streams.clear(), kgsl.dispatches.clear(), kgsl.requests.clear()
    gc.collect()
    device.synchronize()
    assert kgsl.live == before
