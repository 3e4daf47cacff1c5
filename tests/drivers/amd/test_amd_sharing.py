"""Memory that two GPUs map: who sees what, when it is waited for, and when it is freed."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterator

import numpy as np
import pytest
from kernels import SCALE, build, untyped

import ringfence as rf
from ringfence.virtual.faults import CallError
from ringfence.virtual.machine import Machine

pytest.importorskip("ziglang")

COUNT = 1024


@pytest.fixture
def peer(machine: Machine, device: rf.Device) -> Iterator[rf.Device]:
    with rf.open("kfd:1", port=machine, timeout=20.0) as opened:
        yield opened


def scale(device: rf.Device, y: rf.Buffer, x: rf.Buffer, factor: float) -> rf.Submission:
    kernel = device.load(build(SCALE))["scale"]
    return device.launch(kernel, y, x, factor, COUNT, groups=COUNT // 64, local=64)


def ones(device: rf.Device, **options: str) -> rf.Buffer:
    return device.array(np.ones(COUNT, np.float32), label="x", **options)


@pytest.mark.parametrize("cache", ["writecombine", "uncached", "cached", "device"])
def test_two_gpus_work_on_the_same_memory_in_turn(device: rf.Device, peer: rf.Device, cache: str) -> None:
    mine = ones(device, cache=cache)
    theirs = peer.import_buffer(mine)
    assert (theirs.shape, theirs.dtype, theirs.label) == (mine.shape, mine.dtype, "x")
    assert theirs.ownership is rf.Ownership.FOREIGN
    for _ in range(3):
        scale(device, mine, mine, 2.0).wait()
        scale(peer, theirs, theirs, 3.0).wait()
    assert (mine.numpy() == 6.0**3).all()
    assert (theirs.numpy() == 6.0**3).all()


def test_imported_cpu_memory_is_shared_too(device: rf.Device, peer: rf.Device) -> None:
    array = np.ones(COUNT + 3, np.float32)[3:]
    theirs = peer.import_buffer(device.import_array(array))
    scale(peer, theirs, theirs, 5.0).wait()
    theirs.invalidate()
    assert (array == 5.0).all()


def test_a_view_of_a_buffer_is_shared_as_that_view(device: rf.Device, peer: rf.Device) -> None:
    whole = device.zeros(2 * COUNT, np.float32)
    half = whole.offset_view(4 * COUNT, 4 * COUNT, dtype=np.float32)
    theirs = peer.import_buffer(half, label="half")
    theirs.copy_from(np.full(COUNT, 7, np.float32))
    assert whole.numpy().tolist() == [0.0] * COUNT + [7.0] * COUNT


def test_the_cpu_waits_for_both_gpus() -> None:
    with (
        Machine(("gfx1100", "gfx1100"), mode="async") as machine,
        rf.open("kfd:0", port=machine) as device,
        rf.open("kfd:1", port=machine) as peer,
    ):
        mine = ones(device)
        theirs = peer.import_buffer(mine)
        for step in range(50):
            scale(peer, theirs, theirs, 2.0)
            assert (mine.numpy() == 2.0).all(), step
            mine.copy_from(np.ones(COUNT, np.float32))


@pytest.mark.parametrize("first", ["owner", "importer"])
@pytest.mark.parametrize("how", ["free", "close"])
def test_memory_lives_until_the_last_device_lets_go(first: str, how: str) -> None:
    with Machine(("gfx1100", "gfx1100")) as machine:
        device, peer = (rf.open(f"kfd:{i}", port=machine, timeout=20.0) for i in range(2))
        mine = ones(device)
        theirs = peer.import_buffer(mine)
        devices, buffers = (device, peer), (mine, theirs)
        gone = 0 if first == "owner" else 1
        if how == "close":
            devices[gone].close()
        else:
            buffers[gone].free()
        with pytest.raises(rf.LeaseError, match="freed"):
            buffers[gone].numpy()
        rest, left = devices[1 - gone], buffers[1 - gone]
        scale(rest, left, left, 4.0).wait()
        assert (left.numpy() == 4.0).all()
        for opened in devices:
            opened.close()
        del mine, theirs, left, buffers
        gc.collect()
        assert machine.live_objects().total == 0


def test_a_view_keeps_shared_memory_mapped_after_both_devices_are_closed(machine: Machine) -> None:
    device, peer = (rf.open(f"kfd:{i}", port=machine, timeout=20.0) for i in range(2))
    mine = ones(device)
    theirs = peer.import_buffer(mine)
    view = np.asarray(theirs)
    device.close()
    peer.close()
    assert (view == 1.0).all()
    del view, mine, theirs
    gc.collect()
    assert machine.live_objects().total == 0


def test_sharing_a_hundred_times_leaks_nothing(machine: Machine, device: rf.Device, peer: rf.Device) -> None:
    for round_number in range(100):
        mine = ones(device)
        theirs = peer.import_buffer(mine)
        scale(peer, theirs, theirs, 2.0).wait()
        (mine if round_number % 2 else theirs).free()
        (theirs if round_number % 2 else mine).free()
        if round_number == 1:
            before = machine.live_objects(), device.mapping_count, peer.mapping_count
    assert (machine.live_objects(), device.mapping_count, peer.mapping_count) == before


def test_a_gpu_that_may_only_read_what_another_may_only_read(device: rf.Device, peer: rf.Device) -> None:
    array = np.ones(COUNT, np.float32)
    array.flags.writeable = False
    theirs = peer.import_buffer(device.import_array(array))
    with pytest.raises(rf.LaunchError, match="read-only"):
        scale(peer, theirs, theirs, 2.0)
    kernel = peer.load(untyped(SCALE))["scale"]
    factor, count = np.float32(2.0), np.uint32(COUNT)
    with pytest.raises(rf.GpuFault, match="read-only"):
        peer.launch(kernel, theirs, theirs, factor, count, groups=1, local=64).wait()


# ----- refusals -----------------------------------------------------------------------------------


def test_without_a_large_bar_only_memory_of_the_host_is_shared() -> None:
    with (
        Machine(("gfx1100", "gfx1100"), large_bar=False) as machine,
        rf.open("kfd:0", port=machine) as device,
        rf.open("kfd:1", port=machine) as peer,
    ):
        with pytest.raises(rf.LeaseError, match=r"peer-to-peer.*cache='cached'"):
            peer.import_buffer(ones(device))
        theirs = peer.import_buffer(ones(device, cache="cached"))
        scale(peer, theirs, theirs, 2.0).wait()
        assert (theirs.numpy() == 2.0).all()


def test_what_cannot_be_shared_is_a_lease_error(machine: Machine, device: rf.Device, peer: rf.Device) -> None:
    mine = ones(device)
    theirs = peer.import_buffer(mine)
    with pytest.raises(rf.LeaseError, match="of this device already"):
        device.import_buffer(mine)
    with pytest.raises(rf.LeaseError, match="of this device already"):
        device.import_buffer(theirs)
    with pytest.raises(rf.LeaseError, match="of this device already"):
        peer.import_buffer(mine)
    mine.free()
    with pytest.raises(rf.LeaseError, match="freed"):
        peer.import_buffer(mine)


@pytest.mark.parametrize("other", ["virtual:gfx1100", "virtual:a630"])
def test_memory_of_another_system_is_refused(device: rf.Device, other: str) -> None:
    with rf.open(other) as stranger:
        with pytest.raises(rf.LeaseError, match="not behind the same KFD"):
            device.import_buffer(ones(stranger))
        with pytest.raises(rf.LeaseError, match=r"another device|not behind"):
            stranger.import_buffer(ones(device))


def test_a_refused_mapping_leaves_nothing_behind(
    machine: Machine, device: rf.Device, peer: rf.Device
) -> None:
    mine = ones(device)
    before = machine.live_objects(), peer.mapping_count
    machine.faults.add(CallError(call="MAP_MEMORY_TO_GPU", errno=errno.ENOMEM))
    with pytest.raises(rf.PortError, match="MAP_MEMORY_TO_GPU"):
        peer.import_buffer(mine)
    assert (machine.live_objects(), peer.mapping_count) == before
    assert (peer.import_buffer(mine).numpy() == 1.0).all()
