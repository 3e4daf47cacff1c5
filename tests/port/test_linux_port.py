"""The Linux port: system calls, typed errors, and the arm64 cache maintenance code."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import PortError, UnsupportedDevice
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.fields import Ioctl
from ringfence.port import linux
from ringfence.port.linux import LinuxPort, line_bytes, touched_lines


def test_opening_a_missing_node_says_that_no_driver_is_loaded() -> None:
    with pytest.raises(PortError, match="no KGSL driver") as caught:
        LinuxPort().open("/dev/kgsl-there-is-none")
    assert caught.value.errno == errno.ENOENT
    assert isinstance(caught.value, OSError)


def test_opening_without_permission_names_the_likely_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PortError, match=r"EACCES.*group and mode"):
        LinuxPort().open("/dev/kgsl-3d0")


def test_a_refused_ioctl_names_itself_its_fields_and_the_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOMEM, "no")

    monkeypatch.setattr(linux.fcntl, "ioctl", refuse)
    with pytest.raises(PortError, match=r"GPUOBJ_ALLOC\(size=0x1000.*ENOMEM.*no memory"):
        LinuxPort().ioctl(3, kgsl.GPUOBJ_ALLOC(size=4096))


def test_an_ioctl_that_a_signal_interrupts_is_issued_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def interrupted_twice(fd: int, request: int, argument: object, mutate: bool) -> int:
        calls.append(request)
        if len(calls) < 3:
            raise InterruptedError(errno.EINTR, "signal")
        return 0

    monkeypatch.setattr(linux.fcntl, "ioctl", interrupted_twice)
    LinuxPort().ioctl(3, kgsl.DRAWCTXT_DESTROY(drawctxt_id=1))
    assert calls == [kgsl.DRAWCTXT_DESTROY.REQUEST] * 3


def test_an_ioctl_of_the_running_kernel_fills_its_outputs() -> None:
    """FIONREAD on a pipe stands in for a driver: the structure is passed by reference and read back."""

    class FIONREAD(Ioctl):
        _fields_ = [("count", ctypes.c_int)]
        REQUEST = 0x541B

    reader, writer = os.pipe()
    try:
        os.write(writer, b"12345")
        argument = FIONREAD()
        LinuxPort().ioctl(reader, argument)
        assert argument.count == 5
    finally:
        os.close(reader)
        os.close(writer)


def test_a_mapping_shows_the_memory_behind_the_descriptor() -> None:
    port, fd = LinuxPort(), os.memfd_create("object")
    os.truncate(fd, 2 * 4096)
    os.pwrite(fd, b"second page", 4096)
    address = port.mmap(fd, 4096, 4096)
    try:
        assert ctypes.string_at(address, 11) == b"second page"
        ctypes.memmove(address, b"SECOND", 6)
        assert os.pread(fd, 6, 4096) == b"SECOND"
    finally:
        port.munmap(address, 4096)
        port.close(fd)


def test_a_mapping_that_the_kernel_refuses_is_a_port_error() -> None:
    fd = os.open("/dev/null", os.O_RDWR)
    try:
        with pytest.raises(PortError, match="ENODEV"):
            LinuxPort().mmap(fd, 4096, 0)
    finally:
        os.close(fd)


def test_unmapping_nonsense_and_closing_twice_are_port_errors() -> None:
    port = LinuxPort()
    with pytest.raises(PortError, match=r"munmap.*EINVAL"):
        port.munmap(1, 4096)
    fd = os.open("/dev/null", os.O_RDONLY)
    port.close(fd)
    with pytest.raises(PortError, match="EBADF"):
        port.close(fd)


def test_sysfs_text_is_read_and_a_missing_file_is_a_port_error(tmp_path: Path) -> None:
    path = f"{tmp_path}/gpu_model"
    with open(path, "w") as file:
        file.write("Adreno630v2\n")
    assert LinuxPort().read_text(path) == "Adreno630v2\n"
    with pytest.raises(PortError, match="ENOENT"):
        LinuxPort().read_text(path + "x")


def test_linux_cannot_explain_a_lost_context() -> None:
    assert LinuxPort().explain(3, 1) is None
    assert LinuxPort().virtual is False


def test_exactly_the_lines_that_hold_the_range_are_touched() -> None:
    assert touched_lines(0x1000, 64, 64) == (0x1000, 0x1040)
    assert touched_lines(0x1001, 1, 64) == (0x1000, 0x1040)
    assert touched_lines(0x103F, 2, 64) == (0x1000, 0x1080)
    assert touched_lines(0x1040, 65, 64) == (0x1040, 0x10C0)
    assert touched_lines(0x10F0, 16, 128) == (0x1080, 0x1100)


def test_the_line_size_comes_from_the_smallest_data_line_of_the_cache_type_register() -> None:
    assert line_bytes(0x8444C004) == 64  # Cortex-A75: DminLine 4, that is 16 words
    assert line_bytes(5 << 16) == 128


@pytest.mark.skipif(platform.machine() == "aarch64", reason="here they do something")
def test_cache_maintenance_is_a_no_op_where_caches_are_coherent() -> None:
    port = LinuxPort()
    port.fence()
    port.clean(0, 1 << 40)  # an address that would fault if it were touched
    port.invalidate(0, 1 << 40)


def test_the_code_page_is_executable_but_not_writable() -> None:
    address = linux._map_code(b"\xc3")
    with open("/proc/self/maps") as file:
        line = next(line for line in file if line.startswith(f"{address:x}-"))
    assert line.split()[1] == "r-xp"
    assert ctypes.string_at(address, 1) == b"\xc3"
    linux._libc.munmap(address, mmap.PAGESIZE)


ASSEMBLY = {
    linux.ARM64_CLEAN: "1: dc cvac, x0\n add x0, x0, x2\n cmp x0, x1\n b.lo 1b\n dsb sy\n ret",
    linux.ARM64_INVALIDATE: "1: dc civac, x0\n add x0, x0, x2\n cmp x0, x1\n b.lo 1b\n dsb sy\n ret",
    linux.ARM64_CACHE_TYPE: "mrs x0, ctr_el0\n ret",
}


@pytest.mark.parametrize("words", ASSEMBLY, ids=["clean", "invalidate", "cache type"])
def test_the_machine_code_is_what_clang_assembles(words: tuple[int, ...], tmp_path: Path) -> None:
    assembled = _assemble("aarch64", ASSEMBLY[words], tmp_path)
    assert assembled == struct.pack(f"<{len(words)}I", *words)


FENCES = {
    "aarch64": ("dsb sy\n str x1, [x0]\n ret", "dsb sy\n ret"),
    "x86_64": (".intel_syntax noprefix\n sfence\n mov [rdi], rsi\n ret", "sfence\n ret"),
}


@pytest.mark.parametrize("machine", FENCES)
def test_the_fences_are_what_clang_assembles(machine: str, tmp_path: Path) -> None:
    ring, barrier = FENCES[machine]
    assert _assemble(machine, ring, tmp_path) == linux.RING[machine]
    assert _assemble(machine, barrier, tmp_path) == linux.BARRIER[machine]


def test_a_doorbell_stores_64_bits_at_its_address() -> None:
    words = (ctypes.c_uint64 * 3)(1, 2, 3)
    LinuxPort().doorbell(ctypes.addressof(words) + 8)(0xFEDC_BA98_7654_3210)
    assert list(words) == [1, 0xFEDC_BA98_7654_3210, 3]


def test_a_machine_without_a_known_fence_has_no_doorbells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UnsupportedDevice, match="riscv64"):
        LinuxPort().doorbell(0)


def test_a_reserved_range_is_aligned_and_takes_mappings() -> None:
    port, fd = LinuxPort(), os.memfd_create("object")
    os.truncate(fd, 4096)
    os.pwrite(fd, b"object", 0)
    base = port.reserve(4 * 4096, 1 << 21)
    assert base % (1 << 21) == 0
    with pytest.raises(OSError, match="Bad address"):  # nothing can be read or written there
        os.readv(fd, [(ctypes.c_char * 1).from_address(base)])
    assert port.mmap(fd, 4096, 0, address=base + 4096) == base + 4096
    assert ctypes.string_at(base + 4096, 6) == b"object"
    port.munmap(base, 4 * 4096)
    port.close(fd)
    with open("/proc/self/maps") as file:
        assert not any(line.startswith(f"{base:x}-") for line in file)


def test_a_sysfs_directory_is_listed_in_order(tmp_path: Path) -> None:
    for name in ("1", "0"):
        (tmp_path / name).mkdir()
    assert LinuxPort().list_directory(str(tmp_path)) == ["0", "1"]
    with pytest.raises(PortError, match="ENOENT"):
        LinuxPort().list_directory(f"{tmp_path}/2")


def _assemble(machine: str, text: str, folder: Path) -> bytes:
    pytest.importorskip("ziglang")
    source, target = folder / "code.s", folder / "code.o"
    source.write_text(f"{text}\n")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "clang",
        f"--target={machine}-linux-gnu",
        "-c",
        source,
        "-o",
        target,
    ]
    subprocess.run(command, check=True)
    return _section(target.read_bytes(), b".text")


def _section(elf: bytes, name: bytes) -> bytes:
    """The contents of a section of a little-endian ELF64 file."""
    table, size, count, strings = (
        struct.unpack_from("<Q", elf, 0x28)[0],
        *struct.unpack_from("<3H", elf, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * size) for index in range(count)]
    names = headers[strings][4]
    for label, _, _, _, offset, length in headers:
        if elf[names + label :].startswith(name + b"\0"):
            return elf[offset : offset + length]
    raise AssertionError(name)
