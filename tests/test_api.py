"""The public interface: device specs, discovery, lazy imports."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ringfence as rf
from ringfence import api
from ringfence.api import VirtualSpec, parse_virtual
from ringfence.virtual.faults import CallError
from ringfence.virtual.machine import Machine

HEAVY = ("llvmlite", "tinygrad", "onnx", "onnxruntime", "PIL", "rich", "typer", "numpy", "msgspec")


def imported_by(code: str) -> set[str]:
    """The names of the heavy modules that a fresh interpreter has after running ``code``."""
    script = f"{code}\nimport sys, json; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


# ----- imports ------------------------------------------------------------------------------------


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert imported_by("import ringfence") == set()


def test_looking_up_the_interface_loads_no_compiler_and_no_virtual_gpu() -> None:
    code = "import ringfence as rf; rf.open; rf.discover; rf.Buffer; rf.Parameter; rf.LaunchError"
    assert imported_by(code) <= {"numpy", "msgspec"}


def test_every_export_exists_and_unknown_names_do_not() -> None:
    for name in rf.__all__:
        assert getattr(rf, name) is not None
        assert name in dir(rf)
    with pytest.raises(AttributeError, match="no attribute 'compute'"):
        _ = rf.compute


# ----- specs --------------------------------------------------------------------------------------


def test_a_virtual_spec_names_chip_interface_and_options() -> None:
    assert parse_virtual("virtual:a630") == VirtualSpec("a630")
    assert parse_virtual("virtual:a630/kgsl?strict=0&seed=7&mode=async&clock=real") == VirtualSpec(
        "a630", strict=False, seed=7, mode="async", clock="real"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("virtual:a999", "no virtual 'a999', only a630"),
        ("virtual:", "no virtual ''"),
        ("virtual:a630/pci", "reached through kgsl, not 'pci'"),
        ("virtual:a630?speed=9", "unknown option 'speed'; known: seed, strict"),
        ("virtual:a630?strict=yes", "strict='yes' is not one of 0, 1"),
        ("virtual:a630?seed=x", "seed='x' is not a whole number"),
        ("virtual:gfx1100/usb", "gfx1100 is reached through kfd, not 'usb'"),
        ("usb:0", "not reached through usb by this version"),
        ("cuda", "not one of auto, kgsl, kfd:<number>, virtual:<chip>"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(spec: str, message: str) -> None:
    with pytest.raises(rf.UnsupportedDevice, match=message):
        rf.open(spec)


def test_a_missing_real_device_is_a_port_error() -> None:
    with pytest.raises(rf.PortError, match="ENOENT") as caught:
        rf.open("kgsl", path="/dev/kgsl-there-is-none")
    assert caught.value.errno == errno.ENOENT


def test_auto_takes_a_virtual_device_with_a_notice_when_there_is_no_real_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with rf.open("auto", path="/dev/kgsl-there-is-none") as device:
        assert device.info.virtual and device.info.chip == "a630"
    notice = capsys.readouterr().err
    assert "no real device" in notice and "ENOENT" in notice and "virtual a630, which is not a GPU" in notice


def test_the_notice_of_auto_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        rf.open("auto", path="/dev/kgsl-nor-is-this").close()
    assert capsys.readouterr().err.count("which is not a GPU") == 1


def test_auto_takes_the_first_real_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Machine() as machine:
        monkeypatch.setattr(api, "LinuxPort", lambda: machine)
        with rf.open() as device:
            assert device.name == "kgsl" and device.port is machine
    assert capsys.readouterr().err == ""


def test_a_virtual_device_is_called_virtual_and_shows_its_machine() -> None:
    with rf.open("virtual:a630?seed=3&strict=0") as device:
        machine: Any = device.port
        assert device.info.virtual
        assert (machine.seed, machine.strict) == (3, False)
        assert repr(device).startswith("<Device 'virtual:a630?seed=3&strict=0'")


def test_closing_a_virtual_device_shuts_its_machine_down() -> None:
    device = rf.open("virtual:a630")
    machine: Any = device.port
    device.close()
    assert machine.closed
    device.close()


def test_opening_that_fails_shuts_the_machine_down(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Machine] = []

    def make(wanted: VirtualSpec) -> Machine:
        machine = Machine()
        machine.faults.add(CallError(errno=errno.ENOMEM, call="DRAWCTXT_CREATE"))
        made.append(machine)
        return machine

    monkeypatch.setattr(api, "make_machine", make)
    with pytest.raises(rf.PortError, match=r"DRAWCTXT_CREATE.*ENOMEM"):
        rf.open("virtual:a630")
    assert made[0].closed


def test_virtual_devices_without_llvmlite_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(rf.UnsupportedDevice, match=r"llvmlite.*pip install 'ringfence\[virtual\]'"):
        rf.open("virtual:a630")
    entry = next(each for each in rf.discover() if each.spec == "virtual:a630")
    assert not entry.available and "llvmlite" in entry.reason


def test_a_virtual_amd_device_is_opened_like_any_other() -> None:
    with rf.open("virtual:gfx1100/kfd?seed=3") as device:
        assert device.info.virtual and (device.info.family, device.info.chip) == ("amd", "gfx1100")
        x = device.array(np.arange(4, dtype=np.float32))
        y = device.zeros(4, np.float32)
        device.copy(y, x).wait(timeout=5.0)
        assert y.numpy().tolist() == [0, 1, 2, 3]


def test_devices_of_one_machine_are_told_apart_by_their_path() -> None:
    with Machine(("a630", "a630")) as machine:
        first = rf.open("kgsl", port=machine)
        second = rf.open("kgsl", port=machine, path="/dev/kgsl-3d1", label="second")
        x, y = first.array(np.ones(4, np.float32)), second.array(np.zeros(4, np.float32))
        with pytest.raises(rf.LaunchError, match="belongs to another device"):
            first.copy(x, y)
        first.close()
        second.close()


# ----- discovery ----------------------------------------------------------------------------------


def test_discovery_tells_what_was_tried_and_why_something_is_unavailable() -> None:
    found = {each.spec: each for each in rf.discover(path="/dev/kgsl-there-is-none")}
    assert set(found) >= {"kgsl", "kfd", "pci", "usb", "virtual:a630"}
    kgsl = found["kgsl"]
    assert (kgsl.kind, kgsl.available) == ("real", False)
    assert kgsl.tried == ("open /dev/kgsl-there-is-none",) and "ENOENT" in kgsl.reason
    assert "not reached this way" in found["pci"].reason
    for chip in ("a630", "gfx1100"):
        assert found[f"virtual:{chip}"].available and found[f"virtual:{chip}"].kind == "virtual"


def test_discovery_describes_a_device_that_is_there() -> None:
    with Machine() as machine:
        kgsl = rf.discover(port=machine)[0]
        assert kgsl.available and kgsl.reason == ""
        assert kgsl.detail.startswith("a630: chip id 0x603") and "KGSL 3.14" in kgsl.detail
        assert machine.live_objects().total == 0


@pytest.mark.parametrize("call", ["open", "DEVICE_GETPROPERTY"])
def test_discovery_survives_a_device_that_refuses(call: str) -> None:
    with Machine() as machine:
        machine.faults.add(CallError(errno=errno.EACCES, call=call))
        kgsl = rf.discover(port=machine)[0]
        assert not kgsl.available and "EACCES" in kgsl.reason
        assert machine.live_objects().total == 0


# ----- input that makes no sense --------------------------------------------------------------------


@pytest.fixture(params=["virtual:a630", "virtual:gfx1100"])
def device(request: pytest.FixtureRequest) -> Iterator[rf.Device]:
    with rf.open(request.param) as opened:
        yield opened


@pytest.mark.parametrize("spec", [None, 5, b"virtual:a630", ["auto"]])
def test_a_device_is_named_by_text(spec: Any) -> None:
    with pytest.raises(TypeError, match="a device is named by text such as 'auto'"):
        rf.open(spec)


@pytest.mark.parametrize("spec", ["virtual:a630", "virtual:gfx1100"])
@pytest.mark.parametrize("priority", ["1", 1.5, 100, True])
def test_a_priority_is_a_whole_number(spec: str, priority: Any) -> None:
    with pytest.raises(rf.LaunchError, match=f"priority {priority!r}: "):
        rf.open(spec, priority=priority)


@pytest.mark.parametrize("shape", [5, np.int64(5), (np.int64(5),), [5], np.array([5])])
def test_a_shape_is_any_whole_number_or_several(device: rf.Device, shape: Any) -> None:
    buffer = device.empty(shape, np.float32)
    assert buffer.shape == (5,) and type(buffer.shape[0]) is int


@pytest.mark.parametrize("shape", [2.5, (2, 2.5), None, "12"])
def test_another_shape_is_refused(device: rf.Device, shape: Any) -> None:
    with pytest.raises(rf.LaunchError, match=r"'x'.* is neither a whole number nor a tuple of them"):
        device.empty(shape, np.float32, "x")


@pytest.mark.parametrize("dtype", ["floaty", 5, None])
def test_a_dtype_that_numpy_has_not_is_refused(device: rf.Device, dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"buffer 'x': {dtype!r} is not a data type of numpy"):
        device.zeros(4, dtype, "x")
    if dtype is not None:
        with pytest.raises(TypeError, match=f"{dtype!r} is not a data type"):
            device.empty(4, np.float32).offset_view(0, dtype=dtype)
        with pytest.raises(TypeError, match=f"{dtype!r} is not a data type"):
            device.import_array(np.zeros(4).ctypes.data, 32, dtype=dtype)


@pytest.mark.parametrize("cache", ["fast", "", 5])
def test_an_unknown_kind_of_memory_names_the_known_ones(device: rf.Device, cache: Any) -> None:
    with pytest.raises(rf.LaunchError, match=f"cache={cache!r}: known are writecombine, uncached, cached"):
        device.array(np.zeros(4), cache=cache)


@pytest.mark.parametrize(
    ("timeout", "error"), [(float("nan"), ValueError), (-1, ValueError), (-0.5, ValueError), ("1", TypeError)]
)
def test_a_timeout_is_a_number_of_seconds(device: rf.Device, timeout: Any, error: type[Exception]) -> None:
    x = device.zeros(4, np.float32)
    job = device.copy(device.zeros(4, np.float32), x).submission
    assert job is not None
    waits = (job.wait, device.synchronize, x.numpy, x.view, device.close)
    for wait in (*waits, lambda timeout: rf.open(device.name, timeout=timeout)):
        with pytest.raises(error, match=f"timeout={timeout!r}"):
            wait(timeout)
    job.wait(np.float32(5))
    with pytest.raises(error, match=f"timeout={timeout!r}"):
        job.wait(timeout)


@pytest.mark.parametrize("instances", [1.5, float("nan"), "2", 0, None])
def test_instances_are_counted(device: rf.Device, instances: Any) -> None:
    stream = device.record("frame").copy(device.zeros(4, np.float32), device.zeros(4, np.float32))
    with pytest.raises(rf.LaunchError, match=f"'frame': bind with {instances!r} instances"):
        device.bind(stream, instances=instances)
    assert device.bind(stream, instances=np.int64(2)).instances == 2


def test_things_of_another_kind_are_named(device: rf.Device) -> None:
    x: Any = device.zeros(4, np.float32, "x")
    nothing: Any = None
    calls: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (rf.LaunchError, "NoneType is not a stream", lambda: device.bind(nothing)),
        (rf.LeaseError, "NoneType is not a buffer", lambda: device.import_buffer(nothing)),
        (rf.LeaseError, "16 bytes at 4096.0 is no range", lambda: device.import_array(4096.0, 16)),  # type: ignore[arg-type]
        (rf.LaunchError, "at byte 1.5 of .*'x'", lambda: x.offset_view(1.5)),
        (rf.LaunchError, "NoneType is no timeline", lambda: device.record().wait(nothing)),
        (rf.LaunchError, "NoneType is no timeline", lambda: device.record().signal(nothing)),
        (rf.LaunchError, "parameter 5: the name", lambda: rf.Parameter(5)),  # type: ignore[arg-type]
        (TypeError, "a package is named by its path, not by NoneType", lambda: device.load_package(nothing)),
    ]
    for error, message, call in calls:
        with pytest.raises(error, match=message):
            call()


def test_a_closed_device_says_so(device: rf.Device) -> None:
    x = device.zeros(4, np.float32)
    stream = device.record().copy(device.zeros(4, np.float32), x)
    device.close()
    calls: list[Callable[[], Any]] = [
        lambda: device.array(np.zeros(4)),
        lambda: device.bind(stream),
        lambda: device.compile("kernel void k() {}"),
        lambda: device.copy(x, np.zeros(4, np.float32)),
        lambda: device.empty(4, np.float32),
        lambda: device.import_array(np.zeros(4)),
        lambda: device.import_buffer(x),
        lambda: device.load(b""),
        lambda: device.load_package("none.rfp"),
        lambda: device.synchronize(),
        lambda: device.timeline(),
        lambda: device.record(),
        lambda: device.zeros(4, np.float32),
        lambda: device.__enter__(),
        lambda: device.capture().__enter__(),
    ]
    for call in calls:
        with pytest.raises(rf.DeviceLost, match=f"{device.name} is closed"):
            call()
