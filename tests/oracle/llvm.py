"""LLVM's assembler for AMD GPUs, from the ziglang wheel, as an independent source of encodings and texts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_ENCODING = re.compile(r"[;/]+ encoding: \[([^\]]*)\]$")
_ERROR = re.compile(r"^[^:\n]*:(\d+):\d+: error: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Assembled:
    """What LLVM made of one line: its own spelling with single spaces, and the words."""

    text: str
    words: tuple[int, ...]


def assemble(
    lines: Sequence[str], *, cpu: str = "gfx1100", features: Sequence[str] = ()
) -> list[Assembled | str]:
    """Return for each line (one instruction each) what it assembles to, or the error message."""
    command = [sys.executable, "-m", "ziglang", "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa"]
    command += ["-target-cpu", cpu, "-filetype", "asm", "-show-encoding", "-o", "-", "/dev/stdin"]
    for feature in features:
        command += ["-target-feature", feature]
    result = subprocess.run(
        command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False
    )
    errors = {int(line) - 1: message for line, message in _ERROR.findall(result.stderr)}
    good = iter(_parse(result.stdout))
    try:
        return [errors[index] if index in errors else next(good) for index in range(len(lines))]
    except StopIteration:
        raise AssertionError(f"the assembler stopped early: {result.stderr[-2000:]}") from None


def _parse(output: str) -> list[Assembled]:
    found = []
    for line in output.splitlines():
        match = _ENCODING.search(line)
        if match:
            data = bytes(int(byte, 16) for byte in match[1].split(","))
            words = tuple(int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4))
            found.append(Assembled(" ".join(line[: match.start()].split()), words))
    return found


def assemble_object(source: str, *, cpu: str = "gfx1100") -> bytes:
    """Return the relocatable object of an assembly file; ``AssertionError`` with LLVM's messages."""
    command = [sys.executable, "-m", "ziglang", "clang", "-cc1as", "-triple", "amdgcn-amd-amdhsa"]
    command += ["-target-cpu", cpu, "-filetype", "obj", "-o", "/dev/stdout", "/dev/stdin"]
    result = subprocess.run(command, input=source.encode() + b"\n", capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout
