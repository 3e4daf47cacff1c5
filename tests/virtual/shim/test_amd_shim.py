"""tinygrad's AMD runtime on a virtual gfx1100: files, mappings, doorbells, faults."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.compile.host_cc import write_compiler
from ringfence.errors import CompileError, UnsupportedDevice
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags, EventType
from ringfence.hardware.amd.topology import NODES_ROOT
from ringfence.virtual.shim.command import shim_environment
from ringfence.virtual.shim.compiler import compile_object
from ringfence.virtual.shim.session import Session

HEADER = """
import numpy as np
from ringfence.virtual import shim
session = shim.install("virtual:gfx1100", count={count}, report={report!r})
from tinygrad import Device, Tensor
"""
SETTINGS = ("DEV", "HCQ2", "AMD_DISABLE_SDMA", "LLVM_PATH")


def client(
    code: str, count: int = 1, report: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code that uses tinygrad; ``session`` is the shim's."""
    pytest.importorskip("tinygrad")
    base = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    text = HEADER.format(count=count, report=report and str(report)) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**base, "DEV": "AMD:LLVM", "PARALLEL": "0", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def printed(code: str, count: int = 1, **environment: str) -> str:
    return client(code, count, None, **environment).stdout


@pytest.fixture(scope="module", autouse=True)
def compiler_of_the_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """tinygrad's CPU device, which tensors of several cards pass through, compiles with what CC names."""
    pytest.importorskip("ziglang")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(write_compiler(tmp_path_factory.mktemp("compiler"))))
        yield


@pytest.fixture
def session() -> Session:
    return Session("virtual:gfx1100")


# ----- command ------------------------------------------------------------------------------------


def test_tinygrad_computes_on_the_virtual_device(tmp_path: Path) -> None:
    pytest.importorskip("tinygrad")
    report = tmp_path / "report.jsonl"
    base = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    code = "from tinygrad import Device, Tensor; print(Device.DEFAULT, (Tensor([1, 2, 3.]) + 1).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=shim_environment(base, "virtual:gfx1100", report=str(report)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "AMD [2.0, 3.0, 4.0]\n", done.stderr
    (line,) = map(json.loads, report.read_text().splitlines())
    assert line["device"] == "virtual:gfx1100"
    assert line["dispatches"] >= 1
    assert line["faults"] == []


def test_the_settings_of_tinygrad_are_those_of_the_device_unless_somebody_has_set_them() -> None:
    chosen = shim_environment({}, "virtual:gfx1100")
    assert (chosen["DEV"], chosen["AMD_DISABLE_SDMA"]) == ("AMD:LLVM", "1")
    assert shim_environment({"DEV": "AMD", "AMD_DISABLE_SDMA": "0"}, "virtual:gfx1100")["DEV"] == "AMD"
    assert "AMD_DISABLE_SDMA" not in shim_environment({}, "virtual:a630")


def test_a_number_of_devices_below_one_is_refused() -> None:
    with pytest.raises(UnsupportedDevice, match="at least one"):
        Session("virtual:gfx1100", count=0)
    with pytest.raises(UnsupportedDevice, match="at least one"):
        shim_environment({}, "virtual:gfx1100", count=0)


# ----- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/dev/kfd", "/dev/dri/renderD128", "/sys/module/amdgpu", NODES_ROOT, f"{NODES_ROOT}/1/properties"],
)
def test_nodes_files_and_directories_of_the_machine_exist(session: Session, path: str) -> None:
    assert session.owns(path)
    assert session.exists(path)


@pytest.mark.parametrize("path", ["/dev/dri/renderD129", f"{NODES_ROOT}/7", f"{NODES_ROOT}/1/no_such_file"])
def test_what_the_machine_does_not_have_does_not_exist(session: Session, path: str) -> None:
    assert session.owns(path)
    assert not session.exists(path)


def test_kgsl_files_are_none_of_an_amd_device(session: Session) -> None:
    assert not session.owns("/dev/kgsl-3d0")


def test_sysfs_cannot_be_written(session: Session) -> None:
    with pytest.raises(PermissionError):
        session.write_text("/sys/class/drm/renderD128/device/power_dpm_force_performance_level", "auto")


def test_a_failed_ioctl_is_named() -> None:
    session = Session("virtual:gfx1100")
    argument = kfd.FREE_MEMORY_OF_GPU(handle=77)
    descriptor = session.open("/dev/kfd")
    with pytest.raises(OSError, match="AMDKFD_IOC_FREE_MEMORY_OF_GPU"):
        session.ioctl(descriptor, kfd.FREE_MEMORY_OF_GPU.REQUEST, ctypes.addressof(argument))
    session.close()


def test_an_address_that_is_no_doorbell_has_nothing_to_ring(session: Session) -> None:
    assert session.doorbell(0x1000) is None
    session.open("/dev/kfd")
    assert session.doorbell(0x1000) is None
    session.close()


def test_event_pages_and_buffers_are_mapped_where_the_client_reserved_addresses(session: Session) -> None:
    machine = session.machine
    descriptor, drm = session.open("/dev/kfd"), session.open("/dev/dri/renderD128")
    gpu_id = int(session.read_text(f"{NODES_ROOT}/1/gpu_id"))
    machine.ioctl(descriptor, kfd.ACQUIRE_VM(drm_fd=drm, gpu_id=gpu_id))
    address = _anonymous(kfd.EVENT_PAGE_BYTES)
    made = kfd.ALLOC_MEMORY_OF_GPU(
        va_addr=address,
        size=kfd.EVENT_PAGE_BYTES,
        gpu_id=gpu_id,
        flags=AllocFlags.GTT | AllocFlags.WRITABLE,
    )
    machine.ioctl(descriptor, made)
    found = session.mmap(drm, kfd.EVENT_PAGE_BYTES, made.mmap_offset, writable=True, address=address)
    assert found == address
    event = kfd.CREATE_EVENT(event_type=EventType.SIGNAL, event_page_offset=made.handle)
    machine.ioctl(descriptor, event)
    assert (
        ctypes.c_uint64.from_address(address + 8 * event.event_slot_index).value == kfd.UNSIGNALED_EVENT_SLOT
    )
    assert session.munmap(address, kfd.EVENT_PAGE_BYTES)
    session.close()


def _anonymous(size: int) -> int:
    """Reserve addresses as a client does: mmap(2) without access."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    private, anonymous = 0x02, 0x20
    return int(libc.mmap(None, size, 0, private | anonymous, -1, 0))


# ----- tinygrad -----------------------------------------------------------------------------------


def test_a_graph_of_kernels_is_replayed() -> None:
    text = printed(
        """
        from tinygrad import TinyJit
        step = TinyJit(lambda x: ((x + 1).contiguous() * 2).contiguous().realize())
        print([step(Tensor([float(i)]).realize()).item() for i in range(6)])
        """
    )
    assert text == f"{[2.0 * (i + 1) for i in range(6)]}\n"


def test_local_memory_is_there() -> None:
    assert printed("print(Tensor(np.arange(4096, dtype=np.float32)).sum().item())") == f"{2048.0 * 4095}\n"


def test_kernels_that_tinygrad_compiles_in_other_processes_have_the_same_compiler() -> None:
    text = printed(
        """
        x = np.random.default_rng(1).standard_normal((64, 48)).astype(np.float32)
        both = Tensor(x).T @ Tensor(x), Tensor(x).max(axis=0)
        Tensor.realize(*both)
        print(np.allclose(both[0].numpy(), x.T @ x, atol=1e-4), np.array_equal(both[1].numpy(), x.max(0)))
        """,
        PARALLEL="2",
    )
    assert text == "True True\n"


def test_what_nobody_waits_for_is_finished_before_the_process_ends(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    done = client("(Tensor([1, 2]) + 1).realize()", report=report)
    assert "failed" not in done.stdout + done.stderr
    (line,) = map(json.loads, report.read_text().splitlines())
    assert line["dispatches"] == 1


def test_a_store_to_a_doorbell_tells_the_machine() -> None:
    text = printed(
        """
        (Tensor([1, 2]) + 1).realize()
        doorbell = Device["AMD"].compute_queue.doorbell
        print(type(doorbell).__name__, doorbell[0] == Device["AMD"].compute_queue.put_value)
        print(any(engine.polling() for engine in session.machine.devices[0].engines))
        """
    )
    assert text == "Doorbell True\nFalse\n"


def test_a_doorbell_that_is_rung_behind_the_back_of_the_machine_is_seen_too() -> None:
    text = printed(
        """
        import ctypes
        import tinygrad.runtime.ops_amd as ops_amd
        from tinygrad.runtime.support.hcq import MMIOInterface
        ops_amd.MMIOInterface = MMIOInterface
        print((Tensor([1, 2]) + 1).tolist(), type(Device["AMD"].compute_queue.doorbell).__name__)
        """
    )
    assert text == "[2, 3] MMIOInterface\n"


def test_tinygrad_finds_out_that_there_are_no_copy_queues() -> None:
    text = printed(
        """
        print((Tensor([1, 2]) + 1).tolist(), Device["AMD"].has_sdma_queue)
        print("KFD copy queues" in {note.topic for note in session.machine.notes})
        """
    )
    assert text == "[2, 3] False\nTrue\n"


def test_several_cards_work_on_shards_of_one_tensor() -> None:
    text = printed(
        """
        devices = ("AMD:0", "AMD:1")
        x = Tensor(np.arange(64, dtype=np.float32), device="AMD:0").shard(devices, axis=0)
        print((x * 2).sum().item(), Device["AMD:1"].count())
        """,
        count=2,
    )
    assert text == f"{64.0 * 63} 2\n"


def test_memory_of_the_cpu_is_imported() -> None:
    text = printed(
        """
        from tinygrad import dtypes
        host = np.arange(4096, dtype=np.float32)
        data = host[-host.ctypes.data // 4 % 1024 :][:1024]  # from the first page boundary on
        device = Tensor.from_blob(data.ctypes.data, (1024,), dtype=dtypes.float32, device="CPU")
        Device["AMD"].allocator._map(device.uop.buffer.ensure_allocated()._buf)
        before = session.machine.live_objects().imports
        print(before >= 1, (device.to("AMD") + 1).tolist()[5] == data[5] + 1)
        """,
    )
    assert text == "True True\n"


def test_a_memory_fault_is_what_kfd_says_and_the_report_says_more() -> None:
    done = client(
        """
        from ringfence.virtual.faults import PageFault
        x = (Tensor([1, 2, 3]) + 1).realize()
        session.machine.faults.add(PageFault(address=0x1234000))
        try:
            (x + 1).tolist()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        print(len(session.faults), session.faults[0].kind)
        """
    )
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("MMU fault: 0x1234000 | NotPresent=1")
    assert second == "1 memory"
    assert "ringfence shim: virtual:gfx1100 failed: " in done.stderr


def test_a_hang_is_a_hardware_fault() -> None:
    done = client(
        """
        from ringfence.virtual.faults import Hang
        x = (Tensor([1, 2, 3]) + 1).realize()
        Device["AMD"].synchronize()
        session.machine.hang_timeout = 0.2
        session.machine.faults.add(Hang(at="dispatch"))
        try:
            (x + 1).tolist()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        print(session.faults[0].kind)
        """
    )
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("HW fault: ")
    assert second == "hang"


def test_a_bug_of_the_virtual_gpu_is_a_hardware_fault_with_its_traceback() -> None:
    done = client(
        """
        from ringfence.virtual.shim.meter import Meter
        def broken(self, dispatch, memory): raise ZeroDivisionError("a bug of the executor")
        Meter.run = broken
        try:
            (Tensor([1, 2, 3]) + 1).tolist()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        """
    )
    assert done.stdout.startswith("HW fault: ")
    assert "ZeroDivisionError: a bug of the executor" in done.stderr


def test_freed_buffers_leave_nothing_behind() -> None:
    text = printed(
        """
        (Tensor.zeros(3000) + 1).contiguous().realize()
        Device["AMD"].allocator.free_cache()
        before = session.machine.live_objects()
        for i in range(50):
            Tensor(np.zeros(1000 + i * 4096, np.float32)).realize()
            Device["AMD"].allocator.free_cache()
        print(session.machine.live_objects() == before)
        """
    )
    assert text == "True\n"


def test_a_forked_child_gets_a_device_of_its_own() -> None:
    text = printed(
        """
        import os
        print((Tensor([1, 2]) + 1).tolist(), flush=True)
        if os.fork() == 0:
            forgotten = not session.running
            print(forgotten, session.is_descriptor(session.open("/dev/kfd")), flush=True)
            os._exit(0)
        os.wait()
        print((Tensor([3, 4]) + 1).tolist())
        """
    )
    assert text == "[2, 3]\nTrue True\n[4, 5]\n"


# ----- the compiler -------------------------------------------------------------------------------

STORE = """
define amdgpu_kernel void @store(ptr addrspace(1) %out) {
  store i32 7, ptr addrspace(1) %out
  ret void
}
"""


def test_a_module_becomes_a_relocatable_object_for_the_chip() -> None:
    code = compile_object(STORE, "gfx1100", "+cumode")
    relocatable, amdgpu, gfx1100 = 1, 224, 0x41
    assert int.from_bytes(code[16:18], "little") == relocatable
    assert int.from_bytes(code[18:20], "little") == amdgpu
    assert code[48] == gfx1100


def test_what_llvm_refuses_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="gfx1100"):
        compile_object("define amdgpu_kernel void @broken() { ret i32 %x }", "gfx1100", "")


def test_a_library_that_is_named_keeps_the_compiler_of_tinygrad(tmp_path: Path) -> None:
    text = printed(
        """
        from tinygrad.runtime.support import compiler_llvm
        print(issubclass(compiler_llvm.AMDLLVMCompiler, compiler_llvm.LLVMCompiler))
        """,
        LLVM_PATH=str(tmp_path / "libLLVM.so"),
    )
    assert text == "True\n"
