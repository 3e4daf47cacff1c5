"""A package on a device: what is allocated, recorded, refused and given back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

import ringfence as rf
from package.fake import FakeDevice
from package.packages import COUNT, WEIGHTS, package_bytes, parts
from ringfence.errors import LaunchError, PackageError
from ringfence.package import Package, decode_package, encode_package
from ringfence.package.format import PlannedBuffer, Step
from ringfence.package.model import Model
from ringfence.virtual.machine import Machine


def double(out: np.ndarray, x: np.ndarray) -> None:
    out[:] = 2 * x


def add(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    out[:] = a + b


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice({"double": double, "add": add})


@pytest.fixture
def package() -> Package:
    return decode_package(package_bytes())


X = np.linspace(0, 1, COUNT, dtype=np.float32)


def test_outputs_come_back_by_name_in_their_shape(device, package):
    outputs = Model(device, package).run(x=X)
    assert list(outputs) == ["z"]
    assert outputs["z"].shape == (COUNT // 2, 2)
    assert np.array_equal(outputs["z"].ravel(), 2 * X + WEIGHTS)


def test_inputs_may_be_given_as_a_mapping(device, package):
    outputs = Model(device, package).run({"x": X})
    assert np.array_equal(outputs["z"].ravel(), 2 * X + WEIGHTS)


def test_a_package_can_be_given_by_path(device, tmp_path: Path):
    path = tmp_path / "tiny.rfp"
    path.write_bytes(package_bytes())
    model = Model(device, path)
    assert "tiny.rfp" not in Path("/proc/self/maps").read_text()
    assert np.array_equal(model.run(x=X)["z"].ravel(), 2 * X + WEIGHTS)


def test_frames_are_independent_and_earlier_outputs_stay(device, package):
    model = Model(device, package)
    first = model.run(x=X)["z"]
    kept = first.copy()
    model.run(x=X + 1)
    assert np.array_equal(first, kept)


def test_the_launch_list_is_bound_once(device, package):
    model = Model(device, package)
    for _ in range(3):
        model.run(x=X)
    assert device.bound == 1
    assert len(device.graphs) == 1


def test_a_poisoned_model_starts_with_nans_and_computes_the_same(device, package):
    seen = []

    def spy(out: np.ndarray, x: np.ndarray) -> None:
        seen.append(out.copy())
        double(out, x)

    device.programs["double"] = spy
    outputs = Model(device, package, poison=True).run(x=X)
    assert np.isnan(seen[0]).all()
    assert np.array_equal(outputs["z"].ravel(), 2 * X + WEIGHTS)


def test_the_stages_of_a_run_are_timed(device, package):
    model = Model(device, package)
    model.run(x=X)
    assert (model.timings.host_encode, model.timings.queue) == (1e-3, 2e-3)
    assert (model.timings.gpu, model.timings.host_visible) == (3e-3, 4e-3)
    assert model.timings.total >= model.timings.copy_in + model.timings.copy_out


def test_the_launches_are_those_of_the_package(device, package):
    Model(device, package)
    names, _, groups, local = zip(*device.graphs[0].launches)
    assert names == ("double", "add")
    assert groups == ((1, 1, 1), (1, 1, 1))
    assert local == ((COUNT, 1, 1), (COUNT, 1, 1))


def test_overlapping_parts_of_the_arena_need_a_barrier():
    """What a model captures is a graph, so barriers follow from the bytes of its buffers."""
    with Machine() as machine, rf.open("kgsl", port=machine) as device:
        graph = captured(device, (arena(0, 512), arena(256, 512)), (4, 0), (5, 0))
        assert [node.barrier for node in graph.nodes] == [False, True, False]
        graph = captured(device, (arena(0), arena(512)), (4, 0), (5, 0))
        assert not graph.barriers


def captured(device: rf.Device, buffers: tuple[PlannedBuffer, ...], *steps: tuple[int, ...]) -> rf.Graph:
    """Return the graph of doublings (out, in) over extra arena buffers 4, 5, ... and one into the output."""
    manifest, sections = parts()
    double = [Step(program=0, buffers=s, groups=(1, 1, 1), local=(COUNT, 1, 1)) for s in steps]
    final = Step(program=0, buffers=(1, 0), groups=(1, 1, 1), local=(COUNT, 1, 1))
    manifest = msgspec.structs.replace(
        manifest, arena_bytes=1024, buffers=(*manifest.buffers, *buffers), steps=(*double, final)
    )
    model = Model(device, decode_package(encode_package(manifest, sections)))
    return model.graph


def arena(offset: int, nbytes: int = 256) -> PlannedBuffer:
    return PlannedBuffer(kind="arena", offset=offset, nbytes=nbytes)


# ----- threads --------------------------------------------------------------------------------------


def slowly_double(out: np.ndarray, x: np.ndarray) -> None:
    before = x.copy()
    time.sleep(1e-3)  # a thread that does not wait for its turn changes the input meanwhile
    assert np.array_equal(x, before)
    out[:] = 2 * x


def test_threads_that_share_a_model_get_their_own_results(device, package):
    device.programs["double"] = slowly_double
    model = Model(device, package)

    def frame(number: int) -> bool:
        z = model.run(x=np.full(COUNT, number, np.float32))["z"]
        return np.array_equal(z.ravel(), 2 * number + WEIGHTS)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(frame, range(40)))


def test_a_model_is_closed_after_the_run_of_another_thread(device, package):
    running = threading.Event()
    freed = []

    def double_and_look(out: np.ndarray, x: np.ndarray) -> None:
        running.set()
        time.sleep(0.05)
        freed.append(len(device.live) < 4)
        double(out, x)

    device.programs["double"] = double_and_look
    model = Model(device, package)
    with ThreadPoolExecutor(1) as thread:
        frame = thread.submit(model.run, x=X)
        assert running.wait(10.0)
        model.close()
        assert np.array_equal(frame.result()["z"].ravel(), 2 * X + WEIGHTS)
    assert freed == [False] and device.live == []


# ----- refused --------------------------------------------------------------------------------------


def test_a_package_for_another_chip_is_refused_with_both_names(device, package):
    device.chip = "a650"
    with pytest.raises(
        PackageError, match=r"compiled for a630, the chip of fake a650 is a650.*--target a650"
    ):
        Model(device, package)
    assert device.live == []


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"takes the inputs \['x'\]; missing: \['x'\]"),
        ({"y": X}, r"missing: \['x'\]; unknown: \['y'\]"),
        ({"x": X[:-1]}, r"array of float32 \(64,\), got float32 \(63,\)"),
        ({"x": X.reshape(8, 8)}, r"got float32 \(8, 8\)"),
        ({"x": X.astype(np.float64)}, r"got float64 \(64,\); convert it with .astype"),
        ({"x": X.tolist()}, "got list"),
    ],
)
def test_wrong_inputs_are_refused_before_anything_is_submitted(device, package, inputs, message):
    model = Model(device, package)
    with pytest.raises(LaunchError, match=message):
        model.run(inputs)
    assert model.submission is None


def test_inputs_need_not_be_contiguous(device, package):
    wide = np.zeros((COUNT, 2), np.float32)
    wide[:, 0] = X
    assert np.array_equal(Model(device, package).run(x=wide[:, 0])["z"].ravel(), 2 * X + WEIGHTS)


def test_an_array_without_a_name_is_refused_with_the_names(device, package):
    with pytest.raises(TypeError, match=r"mapping of names to arrays, not ndarray; they are called \['x'\]"):
        Model(device, package).run(X)


# ----- given back -----------------------------------------------------------------------------------


def test_closing_frees_everything_once(device, package):
    with Model(device, package) as model:
        assert len(device.live) == 4
        model.close()
    assert device.live == []
    assert device.bound == 0


def test_a_closed_model_does_not_run(device, package):
    model = Model(device, package)
    model.close()
    with pytest.raises(LaunchError, match="was closed"):
        model.run(x=X)


@pytest.mark.parametrize("allocation", [1, 2, 3, 4])
def test_nothing_stays_allocated_when_memory_runs_out(device, package, allocation):
    device.fail_at = allocation
    with pytest.raises(MemoryError):
        Model(device, package)
    assert device.live == []


def test_the_device_memory_is_counted(device, package):
    assert Model(device, package).device_bytes == COUNT * 4 * 3 + 512
