"""Packages like another one, with changed programs and correct checksums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package import encode_package, read_package
from ringfence.package.format import BUFFER_ALIGNMENT


def repack(
    package: Path,
    copy: Path,
    change: Callable[[Sequence[AdrenoProgram]], Sequence[AdrenoProgram]],
    **manifest: Any,
) -> Path:
    """Write ``copy``: ``package`` with the programs that ``change`` returns; return ``copy``.

    ``manifest`` are other fields to change.
    """
    with read_package(package) as opened:
        section, entries = bytearray(), []
        for entry, program in zip(opened.manifest.programs, change(opened.programs), strict=True):
            blob = program.to_bytes()
            entries.append(msgspec.structs.replace(entry, offset=len(section), nbytes=len(blob)))
            section += blob + bytes(-len(blob) % BUFFER_ALIGNMENT)
        changed = msgspec.structs.replace(opened.manifest, programs=tuple(entries), **manifest)
        sections = {"programs": bytes(section), "weights": bytes(opened.sections["weights"])}
        copy.write_bytes(encode_package(changed, sections))
    return copy
