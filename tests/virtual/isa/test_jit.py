"""Compilation in worker processes, the cache on disk, and what happens when a compiler process dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from oracle.mesa import assemble
from ringfence.errors import CompileError
from ringfence.virtual.isa import jit, worker
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.isa.ir3.executor import Executor
from ringfence.virtual.memory import AddressSpace

SLEEPY = assemble("nop\nend\nnop\n")


def dispatch(code: bytes = SLEEPY) -> Dispatch:
    return Dispatch(name="program", code=code, groups=(1, 1, 1), local=(4, 1, 1))


def request(code: bytes = SLEEPY, lanes: int = 8) -> jit.Request:
    return jit.Request("ir3", msgspec.msgpack.encode(dispatch(code).unit(True)), lanes)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[jit.Cache]:
    cache = jit.Cache(jit.DiskCache(tmp_path), workers=1)
    yield cache
    cache.close()


def files(directory: Path) -> list[Path]:
    return sorted((directory / "jit").iterdir())


def test_a_program_is_compiled_once_and_then_found(cache: jit.Cache, tmp_path: Path) -> None:
    first = cache.request("a", request).result()
    assert cache.request("a", request).result() is first
    assert (cache.statistics.compilations, cache.statistics.cache_hits) == (1, 0)
    other = jit.Cache(jit.DiskCache(tmp_path))
    assert other.request("a", request).result() == first
    assert (other.statistics.compilations, other.statistics.cache_hits) == (0, 1)
    other.close()
    assert [path.name for path in files(tmp_path)] == ["a"]


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_file_is_deleted_and_the_program_compiled_again(
    cache: jit.Cache, tmp_path: Path, damage: bytes | None
) -> None:
    cache.request("a", request).result()
    path = files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert jit.DiskCache(tmp_path).get("a") is None
    assert not path.exists()


def test_a_cache_directory_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "jit").write_text("a file where a directory should be")
    cache = jit.Cache(jit.DiskCache(tmp_path / "jit"), workers=1)
    assert cache.request("a", request).result().object
    cache.close()


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RINGFENCE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert jit.default_cache_dir() == Path.home() / ".cache" / "ringfence"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert jit.default_cache_dir() == Path("/x/ringfence")
    monkeypatch.setenv("RINGFENCE_CACHE", "/own")
    assert jit.default_cache_dir() == Path("/own")


def test_a_program_that_cannot_be_translated_stays_refused_and_is_not_kept(
    cache: jit.Cache, tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(jit.TranslationError, match="kill is not implemented") as caught:
            cache.request("a", lambda: request(assemble("kill p0.x\nend\n"))).result()
        assert (caught.value.pc, caught.value.internal) == (0, False)
    assert not (tmp_path / "jit").exists()


def test_the_worker_answers_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = worker.answer(msgspec.msgpack.encode(request()))
    assert reply.compiled is not None and reply.compiled.meta["lanes"] == 8
    refused = worker.answer(msgspec.msgpack.encode(request(assemble("kill p0.x\nend\n"))))
    assert refused.compiled is None and refused.pc == 0 and not refused.internal
    broken = worker.answer(b"\xc1 no message")
    assert broken.compiled is None and broken.internal and "Traceback" in broken.error
    monkeypatch.setattr(jit, "compile_ir", lambda text: jit.host()[0].parse_assembly("nonsense"))
    bad = worker.answer(msgspec.msgpack.encode(request()))
    assert bad.compiled is None and bad.internal


def test_text_that_llvm_refuses_is_an_internal_error() -> None:
    with pytest.raises(jit.TranslationError, match="LLVM refuses") as caught:
        jit.compile_ir("define i32 @f() { ret i64 0 }")
    assert caught.value.internal


DIES_ONCE = """
import pathlib, sys
from ringfence.virtual.isa import worker
flag = pathlib.Path(sys.argv[1])
if not flag.exists():
    flag.touch()
    sys.stdin.buffer.read(4)
    sys.exit(7)
worker.main()
"""


def test_a_compiler_process_that_dies_is_reported_and_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = (sys.executable, "-c", DIES_ONCE, str(tmp_path / "flag"))
    monkeypatch.setattr(jit, "WORKER_COMMAND", command)
    executor = Executor(cache_dir=tmp_path / "cache", threads=1)
    report = executor.run(dispatch(), AddressSpace())
    assert report is not None
    assert report.kind == "internal"
    assert "exit status 7" in report.message
    assert executor.run(dispatch(), AddressSpace()) is None
    executor.close()


CHATTERS = "print('good morning', flush=True); from ringfence.virtual.isa import worker; worker.main()"


def test_what_is_printed_when_python_starts_is_no_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jit, "WORKER_COMMAND", (sys.executable, "-c", CHATTERS))
    executor = Executor(cache_dir=tmp_path / "cache", threads=1)
    assert executor.run(dispatch(), AddressSpace()) is None
    executor.close()


def test_a_death_is_a_compile_error() -> None:
    assert issubclass(jit.WorkerDied, CompileError)


SCATTERED = """
import ctypes
from ringfence.virtual.isa import jit

COUNT = 1 << 16
table = ", ".join(f"i32 {k}" for k in range(COUNT))
code = jit.compile_ir(f'''
@table = private constant [{COUNT} x i32] [{table}]
define i32 @run(i64 %k) {{
  %at = getelementptr [{COUNT} x i32], ptr @table, i64 0, i64 %k
  %found = load i32, ptr %at
  ret i32 %found
}}
''')
loader = jit.Loader()
mmap = ctypes.CDLL(None).mmap
mmap.restype, mmap.argtypes = ctypes.c_size_t, [ctypes.c_size_t] * 2 + [ctypes.c_int] * 3 + [ctypes.c_long]
reserve = lambda size: mmap(0, size, 0, 0x4022, -1, 0)  # private, anonymous, without memory behind it
far = reserve(8 << 30)
while reserve(4 * COUNT) > far:  # no room for the table is left near small pieces of code
    pass
run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(loader.load("x", code, "run"))
print(run(COUNT - 1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mmap's flags are those of Linux")
def test_code_finds_its_constants_where_address_space_is_scattered() -> None:
    done = subprocess.run([sys.executable, "-c", SCATTERED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "65535\n"), done.stderr
