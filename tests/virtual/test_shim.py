"""Clients under the shim: the hooks, the command, and unmodified tinygrad on a virtual device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ringfence.errors import UnsupportedDevice
from ringfence.virtual.shim.command import BOOTSTRAP, main, shim_environment
from ringfence.virtual.shim.hook import install_hooks
from ringfence.virtual.shim.kgsl import ENDLESS_MS, IDLE_TIMER
from ringfence.virtual.shim.platform import requested
from ringfence.virtual.shim.session import Session

HEADER = """
import numpy as np
from ringfence.virtual import shim
session = shim.install({device!r})
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    base = {name: value for name, value in os.environ.items() if name not in ("DEV", "IMAGE", "PROFILE")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env={**base, **environment}, capture_output=True, text=True, timeout=300)


def client(code: str, device: str = "virtual:a630", **environment: str) -> str:
    """Run code that uses tinygrad on a virtual device; ``session`` is the shim's. Return what it printed."""
    pytest.importorskip("tinygrad")
    pytest.importorskip("tinymesa")
    done = python(HEADER.format(device=device) + textwrap.dedent(code), DEV="QCOM:IR3", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "ringfence.virtual.shim", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


# ----- hooks --------------------------------------------------------------------------------------


def test_a_hook_runs_after_its_module_and_before_anybody_imports_from_it(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("value = 1\n")
    (tmp_path / "second.py").write_text("from first import value\n")
    done = python(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from ringfence.virtual.shim.hook import install_hooks
        install_hooks({{"first": lambda module: setattr(module, "value", module.value + 1)}})
        import second
        print(second.value)
        """
    )
    assert done.stdout == "2\n"


def test_hooks_come_too_late_for_a_module_that_was_imported() -> None:
    with pytest.raises(RuntimeError, match=r"too late .*: json"):
        install_hooks({"json": lambda module: None})


def test_importing_the_shim_loads_nothing_heavy() -> None:
    done = python("import sys, ringfence.virtual.shim; print({'numpy', 'llvmlite'} & {*sys.modules})")
    assert done.stdout == "set()\n"


def test_a_client_without_the_names_that_are_replaced_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "tinygrad" / "runtime" / "support"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "hcq.py").write_text("class FileInterface: ...\n")
    code = HEADER.format(device="virtual:a630") + "import tinygrad.runtime.support.hcq"
    done = python(code, PYTHONPATH=str(tmp_path))
    assert "this tinygrad cannot be put on a virtual device" in done.stderr
    assert "FileIOInterface" in done.stderr


# ----- command ------------------------------------------------------------------------------------


def test_the_environment_makes_child_processes_start_with_the_bootstrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = shim_environment({"PYTHONPATH": "/elsewhere"}, "virtual:a630?seed=3", report="r.jsonl")
    assert environment["PYTHONPATH"] == f"{BOOTSTRAP}{os.pathsep}/elsewhere"
    assert environment["RINGFENCE_SHIM"] == "virtual:a630?seed=3"
    assert environment["RINGFENCE_SHIM_REPORT"] == str(tmp_path / "r.jsonl")


def test_the_device_of_tinygrad_is_chosen_only_if_nobody_has() -> None:
    assert shim_environment({}, "virtual:a630")["DEV"] == "QCOM:IR3"
    assert shim_environment({"DEV": "CPU"}, "virtual:a630")["DEV"] == "CPU"


def test_without_a_program_the_command_says_how_to_give_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "put it after --" in capsys.readouterr().err


def test_an_unknown_device_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "virtual:a999", "--", "true"]) == 2
    assert "no virtual 'a999'" in capsys.readouterr().err


def test_a_program_that_does_not_exist_ends_with_127() -> None:
    done = shim("--", "/no/such/program")
    assert done.returncode == 127
    assert "cannot run '/no/such/program'" in done.stderr


@pytest.mark.parametrize("name", ["absent/report.jsonl", "."])
def test_a_report_that_cannot_be_written_is_refused_before_the_program_runs(name, tmp_path: Path) -> None:
    done = shim("--report", str(tmp_path / name), "--", sys.executable, "-c", "print('runs')")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ringfence shim: error: open('{tmp_path}")
    assert line.endswith("the report cannot go there")


def test_a_report_that_fails_at_the_end_is_one_line(tmp_path: Path) -> None:
    code = "import ringfence.virtual.shim as s; s.installed().exists('/dev/kgsl-3d0')"
    done = shim("--report", "/dev/full", "--", sys.executable, "-c", code)
    assert done.returncode == 0
    assert done.stderr == "ringfence shim: error: no report in /dev/full: No space left on device\n"


def test_the_exit_status_is_the_programs() -> None:
    assert shim("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_children_of_the_program_are_under_the_shim_too() -> None:
    inner = "from ringfence.virtual.shim import installed; print(installed().device)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    done = shim("--device", "virtual:a630?seed=5", "--", sys.executable, "-c", outer)
    assert done.stdout == "virtual:a630?seed=5\n"


def test_a_sitecustomize_that_the_bootstrap_hides_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    done = python("print('program')", **shim_environment({"PYTHONPATH": str(tmp_path)}, "virtual:a630"))
    assert done.stdout == "mine\nprogram\n"


def test_a_python_that_cannot_import_ringfence_goes_on_without_devices(tmp_path: Path) -> None:
    (tmp_path / "ringfence.py").write_text("raise ImportError('not here')\n")
    done = python("print('program')", **shim_environment({"PYTHONPATH": str(tmp_path)}, "virtual:a630"))
    assert done.stdout == "program\n"
    assert "no virtual devices" in done.stderr


def test_the_shim_is_installed_once() -> None:
    done = python(HEADER.format(device="virtual:a630") + "shim.install()")
    assert "installed already" in done.stderr


# ----- sysfs --------------------------------------------------------------------------------------


def test_an_idle_timer_beyond_a_signed_integer_reads_as_the_largest_time() -> None:
    session = Session("virtual:a630")
    session.write_text(IDLE_TIMER, "4000000000")
    assert session.read_text(IDLE_TIMER) == f"{ENDLESS_MS}\n"


def test_other_sysfs_files_cannot_be_written() -> None:
    with pytest.raises(PermissionError):
        Session("virtual:a630").write_text("/sys/class/kgsl/kgsl-3d0/gpu_model", "x")


# ----- tinygrad -----------------------------------------------------------------------------------


def test_tinygrad_computes_on_the_virtual_device(tmp_path: Path) -> None:
    pytest.importorskip("tinygrad")
    pytest.importorskip("tinymesa")
    code = "from tinygrad import Tensor, Device; print(Device.DEFAULT, (Tensor([1, 2]) + 1).tolist())"
    report = tmp_path / "report.jsonl"
    done = shim("--report", str(report), "--", sys.executable, "-c", code, DEV="QCOM:IR3")
    assert done.stdout == "QCOM [2, 3]\n", done.stderr
    (line,) = map(json.loads, report.read_text().splitlines())
    assert line["device"] == "virtual:a630"
    assert line["dispatches"] >= 1


def test_a_graph_of_kernels_is_replayed() -> None:
    printed = client(
        """
        from tinygrad import Tensor, TinyJit
        step = TinyJit(lambda x: ((x + 1).contiguous() * 2).contiguous().realize())
        print([step(Tensor([float(i)]).realize()).item() for i in range(6)])
        """
    )
    assert printed == f"{[2.0 * (i + 1) for i in range(6)]}\n"


def test_a_queue_of_frames_that_assigns_to_itself_gives_the_sequential_answer() -> None:
    printed = client(
        """
        from tinygrad import Tensor, TinyJit
        queue = Tensor.zeros(5, 64).contiguous().realize()

        @TinyJit
        def step(new):
            queue.assign(queue[1:].cat(new.reshape(1, 64), dim=0)).realize()
            return (queue * 2).sum(axis=0).realize()

        expected = np.zeros((5, 64), np.float32)
        for i in range(20):
            frame = np.arange(64, dtype=np.float32) + i
            expected = np.concatenate([expected[1:], frame[None]])
            result = step(Tensor(frame).realize()).numpy()
            assert np.array_equal(result, (expected * 2).sum(axis=0)), i
            assert np.array_equal(queue.numpy(), expected), i
        print("20 replays")
        """
    )
    assert printed == "20 replays\n"


def test_a_fault_is_a_lost_device_at_the_waiting_call_and_stays_one() -> None:
    printed = client(
        """
        from tinygrad import Tensor
        from ringfence.errors import DeviceLost
        from ringfence.virtual.faults import PageFault
        x = (Tensor([1, 2, 3]) + 1).realize()
        session.machine.faults.add(PageFault(address=0x1234000))
        for _ in range(2):
            try:
                (x + 1).tolist()
            except DeviceLost as error:
                kinds = isinstance(error, OSError), isinstance(error, RuntimeError)
                print(*kinds, error.report.kind, error)
        print(len(session.faults), session.faults[0].kind)
        """
    )
    first, second = printed.splitlines()[:2]
    assert "1 memory" in printed.splitlines()
    assert first.startswith("True True memory virtual:a630 is lost")
    assert "address 0x1234000" in first
    assert "EXEC_CS" in first
    assert second.startswith("True True memory")


def test_a_bug_of_the_virtual_gpu_is_a_lost_device_with_its_traceback() -> None:
    printed = client(
        """
        from tinygrad import Tensor
        from ringfence.errors import DeviceLost
        from ringfence.virtual.shim.meter import Meter
        def broken(self, dispatch, memory): raise ZeroDivisionError("a bug of the executor")
        Meter.run = broken
        try:
            (Tensor([1, 2, 3]) + 1).tolist()
        except DeviceLost as error:
            print(error.report.kind, error)
        """
    )
    assert printed.startswith("internal virtual:a630 is lost")
    assert "Traceback" in printed
    assert "ZeroDivisionError: a bug of the executor" in printed


def test_a_hang_is_a_lost_device() -> None:
    printed = client(
        """
        from tinygrad import Tensor
        from ringfence.errors import DeviceLost
        from ringfence.virtual.faults import Hang
        session.machine.hang_timeout = 0.2
        session.machine.faults.add(Hang(at="dispatch"))
        try:
            (Tensor([1, 2, 3]) + 1).tolist()
        except DeviceLost as error:
            print(error.report.kind)
        """
    )
    assert printed.startswith("hang\n")


IMPORT = """
from tinygrad import Tensor, dtypes
host = np.arange(64, dtype=np.float32)
device = Tensor.from_blob(host.ctypes.data, (64,), dtype=dtypes.float32, device="QCOM")
print((device + 1).tolist()[5])
host[5] = 100
print((device + 2).tolist()[5])
"""


def test_what_the_cpu_stores_into_imported_memory_is_not_seen_before_it_is_cleaned() -> None:
    clean = "session.clean(host.ctypes.data, host.nbytes)\nprint((device + 3).tolist()[5])"
    printed = client(IMPORT + clean)
    assert printed == "6.0\n7.0\n103.0\n"


def test_coherent_imports_need_no_cleaning() -> None:
    assert client(IMPORT, "virtual:a630?coherent=1") == "6.0\n102.0\n"


def test_the_cpu_sees_what_the_gpu_stored_into_coherent_imports() -> None:
    printed = client(
        """
        from tinygrad import Tensor, dtypes
        host = np.zeros(64, dtype=np.float32)
        device = Tensor.from_blob(host.ctypes.data, (64,), dtype=dtypes.float32, device="QCOM")
        device.assign(Tensor.ones(64)).realize()
        device.uop.buffer.allocator.dev.synchronize()
        print(host.sum())
        """,
        "virtual:a630?coherent=1",
    )
    assert printed == "64.0\n"


def test_profiling_finds_the_idle_timer_that_it_expects() -> None:
    printed = client("from tinygrad import Tensor; print((Tensor([1, 2]) + 1).tolist())", PROFILE="1")
    assert "[2, 3]" in printed


def test_freed_buffers_leave_nothing_behind() -> None:
    printed = client(
        """
        from tinygrad import Tensor, Device
        (Tensor.zeros(3000) + 1).contiguous().realize()
        Device["QCOM"].allocator.free_cache()
        before = session.machine.live_objects()
        for i in range(50):
            Tensor(np.zeros(1000 + i * 4096, np.float32)).realize()
            Device["QCOM"].allocator.free_cache()
        print(session.machine.live_objects() == before)
        """
    )
    assert printed == "True\n"


def test_a_forked_child_gets_a_device_of_its_own() -> None:
    printed = client(
        """
        import os, sys
        from tinygrad import Tensor
        print((Tensor([1, 2]) + 1).tolist(), flush=True)
        if os.fork() == 0:
            parent_forgotten = not session.running
            descriptor = session.open("/dev/kgsl-3d0")
            print(parent_forgotten, session.is_descriptor(descriptor), flush=True)
            os._exit(0)
        os.wait()
        print((Tensor([3, 4]) + 1).tolist())
        """
    )
    assert printed == "[2, 3]\nTrue True\n[4, 5]\n"


@pytest.mark.parametrize("option", ["mode=inline", "clock=virtual", "clock=hybrid"])
def test_settings_that_a_client_cannot_have_are_refused(option: str) -> None:
    with pytest.raises(UnsupportedDevice, match="leave mode and clock out"):
        requested(f"virtual:a630?{option}", 1)
    assert requested("virtual:a630?mode=async&clock=real&seed=3", 1).seed == 3
