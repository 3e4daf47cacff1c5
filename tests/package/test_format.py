"""The package file: what is written is read back, and whatever is wrong with a file is told."""

from __future__ import annotations

import gc
import hashlib
import struct
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from package.packages import COUNT, WEIGHTS, package_bytes, parts, program
from ringfence.errors import PackageError
from ringfence.hardware.adreno.program import Argument
from ringfence.package import (
    InputLayout,
    Manifest,
    decode_package,
    encode_package,
    read_package,
    write_package,
)
from ringfence.package.format import PackedProgram, PlannedBuffer, Step, Tensor

DATA = package_bytes()


def changed(**fields: object) -> bytes:
    """Encode the small package with manifest fields replaced; the encoder checks as the reader does."""
    manifest, sections = parts()
    return encode_package(msgspec.structs.replace(manifest, **fields), sections)


def forged(edit: dict[str, object]) -> bytes:
    """Return the package with manifest entries replaced and right digests: not damaged, but wrong."""
    length = struct.unpack_from("<Q", DATA, 16)[0]
    manifest = msgspec.json.decode(DATA[56 : 56 + length]) | edit
    text = msgspec.json.encode(manifest)
    header = DATA[:16] + struct.pack("<Q", len(text)) + hashlib.sha256(text).digest()
    body = DATA[-(-(56 + length) // 4096) * 4096 :]
    return (header + text).ljust(-(-(56 + len(text)) // 4096) * 4096, b"\0") + body


def sections_of(data: bytes) -> list[dict[str, object]]:
    return msgspec.to_builtins(decode_package(data).manifest.sections)


# ----- what is written is read back -----------------------------------------------------------------


def test_a_written_package_is_read_back(tmp_path: Path):
    manifest, sections = parts()
    write_package(tmp_path / "tiny.rfp", manifest, sections)
    with read_package(tmp_path / "tiny.rfp") as package:
        assert msgspec.structs.replace(package.manifest, sections=()) == manifest
        assert package.programs == (program("double", 1), program("add", 2))
        assert np.array_equal(package.weights().view(np.float32), WEIGHTS)


def test_equal_contents_give_equal_bytes():
    manifest, sections = parts()
    reordered = msgspec.structs.replace(manifest, compiler={"b": "2", "a": "1"})
    ordered = msgspec.structs.replace(manifest, compiler={"a": "1", "b": "2"})
    assert encode_package(reordered, sections) == encode_package(ordered, dict(reversed(sections.items())))


def test_weights_are_a_view_of_the_file_at_a_page_boundary(tmp_path: Path):
    (tmp_path / "tiny.rfp").write_bytes(DATA)
    weights = read_package(tmp_path / "tiny.rfp").weights()
    assert not weights.flags.owndata
    assert not weights.flags.writeable
    assert weights.ctypes.data % 4096 == 0


def test_weights_outlive_the_package(tmp_path: Path):
    (tmp_path / "tiny.rfp").write_bytes(DATA)
    package = read_package(tmp_path / "tiny.rfp")
    weights = package.weights()
    package.close()
    del package
    gc.collect()
    assert np.array_equal(weights.view(np.float32), WEIGHTS)


def test_a_closed_package_leaves_no_mapping(tmp_path: Path):
    (tmp_path / "tiny.rfp").write_bytes(DATA)
    with read_package(tmp_path / "tiny.rfp"):
        assert "tiny.rfp" in Path("/proc/self/maps").read_text()
    assert "tiny.rfp" not in Path("/proc/self/maps").read_text()


def test_a_refused_file_leaves_no_mapping(tmp_path: Path):
    (tmp_path / "bad.rfp").write_bytes(DATA[:-1])
    with pytest.raises(PackageError):
        read_package(tmp_path / "bad.rfp")
    gc.collect()
    assert "bad.rfp" not in Path("/proc/self/maps").read_text()


def test_writing_replaces_a_file_at_once_and_leaves_nothing_behind(tmp_path: Path):
    target = tmp_path / "tiny.rfp"
    target.write_bytes(b"old")
    write_package(target, *parts())
    assert target.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.rfp"]


def test_a_manifest_that_contradicts_itself_is_not_written(tmp_path: Path):
    manifest, sections = parts()
    target = tmp_path / "tiny.rfp"
    with pytest.raises(PackageError):
        write_package(target, msgspec.structs.replace(manifest, arena_bytes=0), sections)
    assert not any(tmp_path.iterdir())


@given(st.binary(max_size=9000), st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_any_weights_and_versions_survive(weights: bytes, versions: dict[str, str]):
    manifest, sections = parts()
    manifest = msgspec.structs.replace(manifest, compiler=versions)
    package = decode_package(encode_package(manifest, {**sections, "weights": sections["weights"] + weights}))
    assert bytes(package.weights()) == sections["weights"] + weights
    assert package.manifest.compiler == versions


# ----- damage ---------------------------------------------------------------------------------------


def test_every_flipped_bit_position_is_noticed():
    for place in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(PackageError):
            decode_package(bytes(damaged))


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(place: int, bits: int):
    damaged = bytearray(DATA)
    damaged[place] ^= bits
    with pytest.raises(PackageError):
        decode_package(bytes(damaged))


@given(st.integers(0, len(DATA) - 1))
def test_any_truncation_is_noticed(length: int):
    with pytest.raises(PackageError):
        decode_package(DATA[:length])


@given(st.binary(min_size=1, max_size=5000))
def test_anything_appended_is_noticed(tail: bytes):
    with pytest.raises(PackageError, match="after the last section"):
        decode_package(DATA + tail)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes):
    with pytest.raises(PackageError):
        decode_package(data)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(PackageError, match=r"nowhere.rfp: No such file.*check the path"):
        read_package(tmp_path / "nowhere.rfp")


def test_an_empty_file_is_truncated(tmp_path: Path):
    (tmp_path / "empty.rfp").touch()
    with pytest.raises(PackageError, match=r"empty.rfp: truncated: 0 bytes"):
        read_package(tmp_path / "empty.rfp")


def test_another_version_says_what_to_do():
    with pytest.raises(PackageError, match="version 2, this software reads 1; compile the model again"):
        decode_package(DATA[:8] + struct.pack("<I", 2) + DATA[12:])


def test_another_file_type_is_named():
    with pytest.raises(PackageError, match="not a ringfence package: it starts with"):
        decode_package(b"PK\3\4" + DATA[4:])


# ----- consistency: digests are right, contents are not ---------------------------------------------


def test_unknown_manifest_entries_are_refused():
    with pytest.raises(PackageError, match="does not decode: Object contains unknown field `extra`"):
        decode_package(forged({"extra": 1}))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"offset": 1 << 20}, "truncated: section 'weights' ends at byte"),
        ({"offset": 0}, "section 'weights' at 0 overlaps|section 'programs' at 0 overlaps"),
        ({"offset": 4100}, "not a multiple of 4096"),
        ({"nbytes": -1}, "size is negative"),
        ({"nbytes": 1 << 40}, "truncated: section 'weights'"),
        ({"sha256": "0" * 64}, "SHA-256 of section 'weights' does not match"),
        ({"name": "programs"}, "section 'programs' is listed twice"),
        ({"name": "other"}, "does not decode"),
    ],
)
def test_a_section_table_that_lies_is_refused(edit: dict[str, object], message: str):
    programs, weights = sections_of(DATA)
    with pytest.raises(PackageError, match=message):
        decode_package(forged({"sections": [programs, weights | edit]}))


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (PlannedBuffer(kind="arena", offset=512, nbytes=256), r"buffer 2 \(arena\) covers bytes 512 to 768"),
        (PlannedBuffer(kind="const", offset=256, nbytes=256), "to 512, section 'weights' has 256"),
        (PlannedBuffer(kind="arena", offset=-256, nbytes=256), "covers bytes -256 to 0"),
        (PlannedBuffer(kind="arena", offset=64, nbytes=256), "offset 64 is not a multiple of 256"),
        (PlannedBuffer(kind="arena", nbytes=0), "covers bytes 0 to 0"),
    ],
)  # fmt: skip
def test_a_buffer_outside_its_memory_is_refused(buffer: PlannedBuffer, message: str):
    buffers = list(parts()[0].buffers)
    buffers[2] = buffer
    with pytest.raises(PackageError, match=message):
        changed(buffers=tuple(buffers))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"program": 2}, "step 1 names program 2, the package has 2"),
        ({"program": -1}, "step 1 names program -1"),
        ({"buffers": (1, 2, 9)}, r"step 1 \('add'\) names buffer 9, the package has 4"),
        ({"buffers": (1, 2)}, r"step 1 \('add'\) has 2 arguments, its program takes 3"),
        ({"buffers": (3, 2, 3)}, "buffer 3: the program writes it, but it is of kind 'const'"),
        ({"buffers": (0, 2, 3)}, "buffer 0: the program writes it, but it is of kind 'input'"),
        ({"buffers": (2, 2, 3)}, "no step writes output 'z'"),
        ({"groups": (0, 1, 1)}, r"groups \(0, 1, 1\) x local"),
        ({"groups": (1 << 32, 1, 1)}, "is not a launch size"),
        ({"local": (32, 1, 1)}, r"has local size \(32, 1, 1\), its program was compiled for \(64, 1, 1\)"),
    ],
)
def test_a_step_that_cannot_be_launched_is_refused(step: dict[str, object], message: str):
    first, second = parts()[0].steps
    with pytest.raises(PackageError, match=message):
        changed(steps=(first, msgspec.structs.replace(second, **step)))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"buffer": 1}, "input 'x' needs 256 bytes of kind 'input', its buffer 1 has 256 of kind 'output'"),
        ({"buffer": 7}, "input 'x' names buffer 7"),
        ({"shape": (COUNT + 1,)}, "needs 260 bytes"),
        ({"shape": (0,)}, "is empty"),
        ({"dtype": "float31"}, "dtype 'float31' is unknown"),
    ],
)
def test_an_input_that_does_not_fit_its_buffer_is_refused(tensor: dict[str, object], message: str):
    with pytest.raises(PackageError, match=message):
        changed(inputs=(msgspec.structs.replace(parts()[0].inputs[0], **tensor),))


def test_inputs_cannot_share_memory_or_a_name():
    x = parts()[0].inputs[0]
    with pytest.raises(PackageError, match="names are not unique"):
        changed(inputs=(x, x))
    with pytest.raises(PackageError, match="inputs share a buffer"):
        changed(inputs=(x, msgspec.structs.replace(x, name="x2")))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"nbytes": 1 << 20}, r"program 1 \('add'\) covers bytes"),
        ({"offset": 3}, "known are Adreno program blobs and AMD code objects"),
        ({"nbytes": 50}, "truncated"),
    ],
)
def test_a_program_that_is_not_there_is_refused(entry: dict[str, object], message: str):
    first, second = parts()[0].programs
    with pytest.raises(PackageError, match=message):
        changed(programs=(first, msgspec.structs.replace(second, **entry)))


def test_programs_for_another_chip_are_refused():
    with pytest.raises(PackageError, match=r"program 0 \('double'\) is for a630, the package for a650"):
        changed(target="a650")


def with_argument(argument: Argument) -> bytes:
    """Encode a package whose only program writes the output and reads ``argument``."""
    out = Argument(kind="buffer", name="out", written=True)
    images = {"textures": (1,), "samplers": 1} if argument.kind == "image" else {}
    blob = msgspec.structs.replace(program("read", 1), arguments=(out, argument), **images).to_bytes()
    manifest, sections = parts()
    step = Step(program=0, buffers=(1, 3), groups=(1, 1, 1), local=(COUNT, 1, 1))
    entry = PackedProgram(name="read", offset=0, nbytes=len(blob))
    manifest = msgspec.structs.replace(manifest, programs=(entry,), steps=(step,))
    return encode_package(manifest, {**sections, "programs": blob})


def test_an_image_that_exceeds_its_buffer_is_refused():
    assert with_argument(Argument(kind="image", name="in", shape=(1, 16), dtype="float32"))
    with pytest.raises(PackageError, match="image 1x32 of float32 needs 512 bytes, the buffer has 256"):
        with_argument(Argument(kind="image", name="in", shape=(1, 32), dtype="float32"))


def test_scalar_arguments_are_refused():
    with pytest.raises(PackageError, match="argument 'n' is a scalar, packages carry none"):
        with_argument(Argument(kind="scalar", name="n", dtype="int32", offset=8, size=4))


PICTURE = InputLayout(
    input="x", axes="NCHW", height=4, width=5, channels="RGB", mean=(0.5,) * 3, std=(0.5,) * 3
)


@pytest.mark.parametrize(
    "edit", [{"width": 6}, {"input": "q"}, {"mean": (0.5,)}, {"std": (0.5, 0, 0.5)}, {"channels": "L"}]
)
def test_a_picture_layout_that_does_not_fit_its_input_is_refused(edit: dict[str, object]):
    manifest, sections = parts()
    picture = Tensor(name="x", dtype="float32", shape=(1, 3, 4, 5), buffer=0)
    buffers = (PlannedBuffer(kind="input", nbytes=240), *manifest.buffers[1:])

    def encode(layout: InputLayout) -> Manifest:
        good = msgspec.structs.replace(manifest, inputs=(picture,), buffers=buffers, layout=layout)
        return decode_package(encode_package(good, sections)).manifest

    assert encode(PICTURE).layout == PICTURE
    with pytest.raises(PackageError, match="the picture layout"):
        encode(msgspec.structs.replace(PICTURE, **edit))
