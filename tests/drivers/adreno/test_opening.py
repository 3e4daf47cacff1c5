"""Opening and closing: what the kernel is asked for, what is refused, and that nothing is left behind."""

from __future__ import annotations

import errno
import gc
import weakref

import numpy as np
import pytest
from fake_kgsl import FakeKgsl
from programs import program

import ringfence as rf
from ringfence.hardware.adreno import kgsl as facts

NOTHING = {"fds": 0, "contexts": 0, "objects": 0, "imports": 0, "maps": 0}


def flags(kgsl: FakeKgsl) -> dict[str, int]:
    (request,) = kgsl.sent(facts.DRAWCTXT_CREATE)
    return {name: value for name, value in facts.CONTEXT_FLAGS.unpack(request.flags).items() if value}


def test_the_context_is_created_with_the_flags_that_compute_needs(kgsl: FakeKgsl, device: rf.Device) -> None:
    assert flags(kgsl) == {
        "PREAMBLE": 1,
        "NO_GMEM_ALLOC": 1,
        "NO_FAULT_TOLERANCE": 1,
        "PWR_CONSTRAINT": 1,
        "PRIORITY": 8,
        "PREEMPT_STYLE": facts.PreemptStyle.FINEGRAIN,
    }


def test_full_power_is_asked_for(kgsl: FakeKgsl, device: rf.Device) -> None:
    assert kgsl.power == facts.PowerLevel.PWR_MAX


def test_the_priority_is_an_option(kgsl: FakeKgsl) -> None:
    rf.open("kgsl", port=kgsl, priority=3).close()
    assert flags(kgsl)["PRIORITY"] == 3


@pytest.mark.parametrize("priority", [0, 16, -1])
def test_an_impossible_priority_is_refused_before_anything_is_opened(kgsl: FakeKgsl, priority: int) -> None:
    with pytest.raises(rf.LaunchError, match=r"1 .most urgent. to 15"):
        rf.open("kgsl", port=kgsl, priority=priority)
    assert kgsl.calls == []


def test_the_device_describes_itself(device: rf.Device) -> None:
    info = device.info
    assert (info.name, info.chip, info.chip_id) == ("Adreno630v2", "a630", 0x06030001)
    assert (info.family, info.interface, info.driver_version) == ("adreno", "kgsl", "KGSL 3.14")
    assert not info.copy_queue and "no copy queue" in info.copy_note
    assert repr(device) == "<Device 'kgsl': Adreno630v2>"


def test_a_kernel_without_the_model_property_is_fine(kgsl: FakeKgsl) -> None:
    kgsl.script["DEVICE_GETPROPERTY"] = [0, 0, errno.ENODEV]
    with rf.open("kgsl", port=kgsl) as device:
        assert device.info.name == "a630"


@pytest.mark.parametrize("chip_id", [0x07030001, 0x43050A01, 0x44050000])
def test_generation_7_3_and_later_are_refused_by_their_id(chip_id: int) -> None:
    kgsl = FakeKgsl(chip_id=chip_id)
    with pytest.raises(rf.UnsupportedDevice, match=f"{chip_id:#010x}.*a7xx.* later"):
        rf.open("kgsl", port=kgsl)
    assert kgsl.live == NOTHING
    assert kgsl.sent(facts.DRAWCTXT_CREATE) == []


@pytest.mark.parametrize("chip_id", [0x06090001, 0x05040000, 0x07000200])
def test_chips_that_are_not_in_the_table_are_refused_by_their_id(chip_id: int) -> None:
    kgsl = FakeKgsl(chip_id=chip_id)
    with pytest.raises(rf.UnsupportedDevice, match=f"{chip_id:#010x}"):
        rf.open("kgsl", port=kgsl)
    assert kgsl.live == NOTHING


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENODEV, errno.ENOENT])
def test_a_node_that_cannot_be_opened_is_a_port_error(kgsl: FakeKgsl, code: int) -> None:
    kgsl.script["open"] = [code]
    with pytest.raises(rf.PortError, match=errno.errorcode[code]) as caught:
        rf.open("kgsl", port=kgsl)
    assert caught.value.errno == code
    assert kgsl.live == NOTHING


def test_whatever_call_of_opening_fails_nothing_is_left_behind() -> None:
    failures = 0
    for nth in range(1, 100):
        kgsl = FakeKgsl(fail_at=(nth, errno.ENOMEM))
        try:
            device = rf.open("kgsl", port=kgsl)
        except rf.PortError as error:
            assert error.errno == errno.ENOMEM
            assert kgsl.live == NOTHING, f"call {nth}, {kgsl.counted[nth - 1]}"
            failures += 1
            continue
        kgsl.fail_at = None
        device.close()
        assert kgsl.live == NOTHING
        break
    assert failures > 10


def session(kgsl: FakeKgsl) -> None:
    """A bit of everything: buffers, an import, a launch, a bound stream."""
    with rf.open("kgsl", port=kgsl) as device:
        kernel = device.load(program(private_bytes=600))
        x = device.array(np.arange(8, dtype=np.float32), cache="cached")
        y = device.import_array(np.zeros(8, np.float32))
        device.launch(kernel, y, x, 2.0, groups=1, local=8).wait()
        bound = device.bind(device.record().dispatch(kernel, (y, x, 1.0), 1, 8))
        bound.submit().wait()
        y.numpy()
        device.copy(y, x).wait()
        x.free()
        device.synchronize()


def test_whatever_call_of_a_session_fails_the_error_is_typed_and_nothing_is_left_behind() -> None:
    failures = 0
    for nth in range(1, 300):
        kgsl = FakeKgsl(fail_at=(nth, errno.ENOMEM))
        try:
            session(kgsl)
        except rf.PortError:
            failures += 1
        else:
            break
        finally:
            gc.collect()
        leaked = {kind: count for kind, count in kgsl.live.items() if count}
        name = kgsl.counted[nth - 1]
        # What the kernel refuses to take back, it takes back when the descriptor is closed.
        allowed = {"GPUOBJ_FREE": "objects", "SHAREDMEM_FREE": "imports", "munmap": "maps"}.get(name)
        assert not leaked or leaked == {allowed: 1}, f"call {nth}, {name}"
    assert failures > 40


def test_closing_gives_everything_back_even_if_objects_are_still_held(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    kernel = device.load(program())
    x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
    job = device.launch(kernel, y, x, 1.0, groups=1, local=8)
    bound = device.bind(device.record().copy(y, x))
    later = bound.submit()
    device.close()
    assert kgsl.live == NOTHING
    assert job.state == "gpu-complete" and later.timings.gpu is not None
    assert x.freed and repr(device).endswith("closed>")


def test_the_context_dies_before_memory_is_released_and_the_descriptor_last(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    kgsl.calls.clear()
    device.close()
    assert kgsl.calls[0] == "DRAWCTXT_DESTROY"
    assert kgsl.calls[-1] == "close"
    assert set(kgsl.calls[1:-1]) == {"GPUOBJ_FREE", "munmap"}


def test_closing_waits_for_the_gpu_first(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
    kgsl.hold = True
    job = device.copy(y, x).submission
    kgsl.script["DEVICE_WAITTIMESTAMP_CTXTID"] = [errno.ETIMEDOUT, errno.ETIMEDOUT]
    release = kgsl._device_waittimestamp_ctxtid

    def wait(argument: facts.DEVICE_WAITTIMESTAMP_CTXTID) -> None:
        kgsl.release()
        release(argument)

    kgsl._device_waittimestamp_ctxtid = wait  # type: ignore[method-assign]
    device.close()
    assert kgsl.calls.count("DEVICE_WAITTIMESTAMP_CTXTID") == 3
    assert job is not None and job.state == "gpu-complete"


def test_a_gpu_that_does_not_finish_is_reported_after_everything_was_given_back(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
    kgsl.hold = True
    device.copy(y, x)
    with pytest.raises(rf.WaitTimeout):
        device.close(timeout=0.5)
    assert kgsl.live == NOTHING


def test_closing_twice_does_nothing(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    device.close()
    kgsl.calls.clear()
    device.close()
    assert kgsl.calls == []


def test_a_closed_device_is_of_no_use(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    kernel, x = device.load(program()), device.zeros(8, np.float32)
    device.close()
    uses = (
        lambda: device.zeros(1, np.float32),
        lambda: device.load(program()),
        lambda: device.launch(kernel, x, x, 1.0, groups=1, local=1),
        lambda: device.import_array(np.zeros(4)),
        lambda: device.copy(x, x),
        device.record,
        device.synchronize,
    )
    for use in uses:
        with pytest.raises(rf.DeviceLost, match="kgsl is closed"):
            use()
    with pytest.raises(rf.LeaseError, match="its device is closed"):
        x.numpy()


def test_an_error_in_the_block_is_not_hidden_by_the_loss_that_caused_it(kgsl: FakeKgsl) -> None:
    with pytest.raises(KeyError), rf.open("kgsl", port=kgsl) as device:
        x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
        kgsl.hold = True
        device.copy(y, x)
        kgsl.dead |= kgsl.contexts.keys()
        raise KeyError("the block's own")


def test_a_device_keeps_nothing_alive_after_it_was_closed(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    gone = weakref.ref(device._driver)
    session_kernel = device.load(program())
    device.close()
    del device, session_kernel
    gc.collect()
    assert gone() is None


def test_a_thousand_openings_leave_nothing(kgsl: FakeKgsl) -> None:
    for _ in range(1000):
        rf.open("kgsl", port=kgsl).close()
        kgsl.requests.clear()
    assert kgsl.live == NOTHING
