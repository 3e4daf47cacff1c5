"""The Adreno program blob: what is written is read back, and damage never passes for a program."""

from __future__ import annotations

import hashlib
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import PackageError
from ringfence.hardware.adreno.program import MAGIC, VERSION, AdrenoProgram, Argument, read_program

HEADER_BYTES = 8 + 4 + 4 + 32


def small_program(**changes) -> AdrenoProgram:
    values = {
        "name": "saxpy",
        "chip": "a630",
        "code": bytes(range(128)),
        "full_registers": 3,
        "half_registers": 0,
        "arguments": (
            Argument(kind="buffer", name="y", written=True),
            Argument(kind="scalar", name="a", offset=8, size=4),
        ),
    }
    return AdrenoProgram(**{**values, **changes})


def sealed(payload: bytes) -> bytes:
    """A blob with a correct header around any payload."""
    return MAGIC + struct.pack("<II", VERSION, len(payload)) + hashlib.sha256(payload).digest() + payload


def same_image_twice() -> tuple[Argument, ...]:
    return (Argument(kind="image", name="in", dtype="float16", shape=(8, 64)),)


counts = st.integers(0, 48)
names = st.text(max_size=12)
images = st.builds(
    Argument,
    kind=st.just("image"),
    name=names,
    dtype=st.sampled_from(["float16", "float32"]),
    shape=st.tuples(st.integers(1, 16384), st.integers(1, 16384)),
    written=st.booleans(),
)
buffers = st.builds(
    Argument, kind=st.just("buffer"), name=names, offset=st.integers(0, 4088), written=st.booleans()
)
scalars = st.builds(
    Argument,
    kind=st.just("scalar"),
    name=names,
    dtype=st.sampled_from(["int32", "float16", "uint8"]),
    offset=st.integers(0, 4088),
    size=st.sampled_from([1, 2, 4, 8]),
)


@st.composite
def programs(draw):
    arguments = tuple(draw(st.lists(images | buffers | scalars, max_size=6)))
    slots = [index for index, argument in enumerate(arguments) if argument.kind == "image"]
    slot_lists = st.lists(st.sampled_from(slots), max_size=4) if slots else st.just([])
    dwords = draw(st.integers(0, 8))
    return AdrenoProgram(
        name=draw(names),
        chip=draw(st.sampled_from(["a630", "a660"])),
        code=draw(st.binary(min_size=128, max_size=128)) * draw(st.integers(1, 3)),
        immediates=draw(st.binary(min_size=4 * dwords, max_size=4 * dwords)),
        immediates_offset=draw(st.integers(0, 1024 - dwords)) * 4,
        constant_bytes=draw(st.integers(0, 4096)),
        full_registers=draw(counts),
        half_registers=draw(counts),
        merged_registers=draw(st.booleans()),
        double_threads=draw(st.booleans()),
        branch_stack=draw(st.integers(0, 63)),
        private_bytes=draw(st.integers(0, 130560)),
        shared_bytes=draw(st.integers(0, 32768)),
        workgroup_id_register=draw(st.integers(0, 255)),
        local_id_register=draw(st.integers(0, 255)),
        local_size_offset=draw(st.just(-1) | st.integers(0, 1021).map(lambda dword: dword * 4)),
        arguments=arguments,
        textures=tuple(draw(slot_lists)),
        uavs=tuple(draw(slot_lists)),
        samplers=draw(st.integers(0, 31)),
        local_size=draw(st.none() | st.tuples(*[st.integers(1, 1024)] * 3)),
        compiler=draw(names),
    )


@given(programs())
def test_what_is_written_is_read_back(program):
    assert read_program(program.to_bytes()) == program


@given(programs())
def test_equal_programs_give_equal_bytes(program):
    assert read_program(program.to_bytes()).to_bytes() == program.to_bytes()


def test_the_layout_is_magic_version_length_digest_payload():
    blob = small_program().to_bytes()
    assert blob == sealed(msgspec.msgpack.encode(small_program()))
    assert blob[:8] == b"RFADRENO"


@pytest.mark.parametrize("length", [0, 1, 7, 8, 11, 12, 15, 16, 47], ids=lambda length: f"{length} bytes")
def test_a_blob_cut_in_its_header_is_refused(length):
    with pytest.raises(PackageError, match=f"truncated: {length} bytes"):
        read_program(small_program().to_bytes()[:length])


def test_a_blob_cut_anywhere_in_its_payload_is_refused():
    blob = small_program().to_bytes()
    for length in range(HEADER_BYTES, len(blob)):
        with pytest.raises(PackageError, match="truncated or padded"):
            read_program(blob[:length])


def test_a_blob_with_bytes_after_its_payload_is_refused():
    with pytest.raises(PackageError, match="truncated or padded"):
        read_program(small_program().to_bytes() + b"\0")


def test_every_flipped_bit_is_refused():
    blob = small_program().to_bytes()
    for bit in range(len(blob) * 8):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PackageError):
            read_program(bytes(damaged))


@given(programs(), st.data())
def test_damage_of_any_program_is_refused(program, data):
    blob = bytearray(program.to_bytes())
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PackageError):
        read_program(bytes(blob))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(blob):
    with pytest.raises(PackageError):
        read_program(blob)


@given(st.binary(max_size=200))
def test_any_payload_with_a_correct_digest_is_refused(payload):
    with pytest.raises(PackageError):
        read_program(sealed(payload))


@given(programs(), st.data())
def test_a_payload_damaged_before_it_was_sealed_is_refused_or_reads_as_what_it_says(program, data):
    payload = bytearray(msgspec.msgpack.encode(program))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    try:
        read = read_program(sealed(bytes(payload)))
    except PackageError:
        return
    assert read_program(read.to_bytes()) == read


def test_a_payload_of_deeply_nested_unknown_values_is_refused():
    nested = b"\x81\xa1z" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(PackageError, match="does not decode"):
        read_program(sealed(nested))


def test_another_version_is_refused_by_its_number():
    blob = bytearray(small_program().to_bytes())
    blob[8:12] = struct.pack("<I", 2)
    with pytest.raises(PackageError, match="has version 2, this software reads version 1"):
        read_program(bytes(blob))


def test_another_file_is_refused_by_its_magic():
    with pytest.raises(PackageError, match="not an Adreno program blob: it starts with"):
        read_program(b"\x7fELF" + bytes(100))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": b""}, "code has 0 bytes"),
        ({"code": bytes(100)}, "code has 100 bytes, not a positive multiple of 128"),
        ({"full_registers": 49}, "full_registers is 49, out of range 0..48"),
        ({"half_registers": -1}, "half_registers is -1"),
        ({"branch_stack": 64}, "branch_stack is 64"),
        ({"private_bytes": 130561}, "private_bytes is 130561"),
        ({"shared_bytes": 32769}, "shared_bytes is 32769"),
        ({"workgroup_id_register": 256}, "workgroup_id_register is 256"),
        ({"local_id_register": -4}, "local_id_register is -4"),
        ({"samplers": 32}, "samplers is 32"),
        ({"constant_bytes": 4112}, "constant_bytes is 4112"),
        ({"immediates_offset": -4}, "immediates_offset is -4"),
        ({"immediates": bytes(3)}, "immediates are not whole dwords"),
        ({"immediates": bytes(8), "immediates_offset": 4092}, "immediates do not fit"),
        ({"local_size_offset": -2}, "local size at byte -2"),
        ({"local_size_offset": 4088}, "local size at byte 4088"),
        ({"local_size_offset": 2}, "local size at byte 2"),
        ({"local_size": (0, 1, 1)}, r"local size \(0, 1, 1\)"),
        ({"local_size": (1, 1025, 1)}, r"local size \(1, 1025, 1\)"),
        ({"arguments": (Argument(kind="buffer", name="x", offset=4089),)}, "'x' lies outside"),
        ({"arguments": (Argument(kind="buffer", name="x", offset=-8),)}, "'x' lies outside"),
        ({"arguments": (Argument(kind="buffer", name="x", size=4),)}, "buffer 'x' has 4 bytes"),
        ({"arguments": (Argument(kind="scalar", name="n", size=3),)}, "scalar 'n' has 3 bytes"),
        ({"arguments": (Argument(kind="scalar", name="n", size=-8),)}, "scalar 'n' has -8 bytes"),
        ({"arguments": (Argument(kind="image", name="i"),)}, "image 'i' has the shape None"),
        ({"arguments": (Argument(kind="image", name="i", shape=(0, 4)),)}, r"the shape \(0, 4\)"),
        ({"arguments": (Argument(kind="image", name="i", shape=(4, 16385)),)}, r"the shape \(4, 16385\)"),
        ({"arguments": (Argument(kind="image", dtype="int8", shape=(4, 4)),)}, "texels of 'int8'"),
        ({"textures": (0,)}, "image slot names argument 0, which is not an image"),
        ({"uavs": (2,)}, "image slot names argument 2"),
        ({"arguments": same_image_twice(), "textures": (-1,)}, "image slot names argument -1"),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_named(changes, message):
    with pytest.raises(PackageError, match=f"program 'saxpy': .*{message}"):
        read_program(small_program(**changes).to_bytes())


def test_one_image_may_be_in_several_slots():
    program = small_program(arguments=same_image_twice(), textures=(0, 0), uavs=(0,))
    assert read_program(program.to_bytes()).textures == (0, 0)
