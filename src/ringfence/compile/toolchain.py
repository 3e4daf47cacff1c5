"""The compiler and the linker for AMD GPUs: clang and lld of the wheel ``ziglang``.

They are started as subcommands of the one executable ``zig``, in an environment of their own, so that neither
PATH nor variables of the caller matter.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from ringfence.compile.host_cc import zig_executable
from ringfence.errors import CompileError

TRIPLE = "amdgcn-amd-amdhsa"
CODE_OBJECT = 5
"""Version of the code objects that are made."""


def clang(arguments: Sequence[str], source: bytes, *, what: str) -> bytes:
    """Return the object that ``clang -cc1`` makes of ``source``.

    ``what`` names the source in errors. Raises :class:`CompileError` with clang's messages.
    """
    result = _run(["clang", "-cc1", "-triple", TRIPLE, *arguments, "-o", "-", "-"], source)
    if result.returncode:
        raise CompileError(f"clang could not compile {what}:\n{_messages(result.stderr)}")
    return result.stdout


class Header:
    """A header that many sources include, parsed once for each set of arguments in a process.

    Parsing ten thousand lines of functions takes nearly a second, reading the result a tenth of that.
    """

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[tuple[str, ...], Path] = {}
        self._lock = threading.Lock()

    def include(self, arguments: Sequence[str]) -> list[str]:
        """Return the arguments that include the header in a source that is compiled with ``arguments``."""
        key = tuple(arguments)
        with self._lock:
            if key not in self._files or not self._files[key].exists():
                self._files[key] = self._write(key)
            return ["-include-pch", str(self._files[key])]

    def _write(self, arguments: Sequence[str]) -> Path:
        if self._folder is None or not Path(self._folder.name).exists():
            self._folder = tempfile.TemporaryDirectory(prefix="ringfence-header-")
        path = Path(self._folder.name) / f"{len(self._files)}.pch"
        path.write_bytes(clang([*arguments, "-emit-pch"], self._text, what="the builtin header"))
        return path


def link(objects: Sequence[bytes], *, what: str) -> bytes:
    """Return the linked code object of some relocatable ones.

    Raises :class:`CompileError` with the messages of lld, which name symbols that nobody defines.
    """
    with tempfile.TemporaryDirectory(prefix="ringfence-link-") as name:
        folder = Path(name)
        paths = [folder / f"{index}.o" for index in range(len(objects))]
        for path, data in zip(paths, objects, strict=True):
            path.write_bytes(data)
        output = folder / "linked"
        command = ["ld.lld", "-shared", "--no-undefined", "--build-id=none", "-o", str(output)]
        result = _run([*command, *map(str, paths)], b"")
        if result.returncode:
            raise CompileError(f"lld could not link {what}:\n{_messages(result.stderr, folder)}")
        return output.read_bytes()


def _run(command: Sequence[str], source: bytes) -> subprocess.CompletedProcess[bytes]:
    zig = zig_executable()
    return subprocess.run(
        [str(zig), *command], input=source, capture_output=True, check=False, env={"LC_ALL": "C"}
    )


def _messages(stderr: bytes, folder: Path | None = None) -> str:
    """Return what a tool printed, without the names of temporary files."""
    text = stderr.decode(errors="replace").strip()
    return text.replace(f"{folder}/", "") if folder else text
