"""The metadata note: what is read, what is ignored, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ringfence.errors import PackageError
from ringfence.hardware.amd.metadata import (
    Argument,
    ArgumentKind,
    KernelMetadata,
    Metadata,
    decode_metadata,
    encode_metadata,
)


def kernel(**more: Any) -> dict[str, Any]:
    """Return the map of a kernel as a compiler writes it."""
    return {
        ".name": "k",
        ".symbol": "k.kd",
        ".kernarg_segment_size": 24,
        ".kernarg_segment_align": 8,
        ".group_segment_fixed_size": 512,
        ".private_segment_fixed_size": 16,
        ".wavefront_size": 32,
        ".sgpr_count": 18,
        ".vgpr_count": 7,
        ".max_flat_workgroup_size": 256,
        **{f".{name}": value for name, value in more.items()},
    }


def note(*kernels: dict[str, Any], **more: Any) -> bytes:
    top = {"amdhsa.version": [1, 2], "amdhsa.target": "amdgcn-amd-amdhsa--gfx1100", "amdhsa.kernels": kernels}
    return msgspec.msgpack.encode({**top, **more})


def test_a_kernel_has_its_sizes() -> None:
    (found,) = decode_metadata(note(kernel())).kernels
    assert (found.kernarg_segment_size, found.group_segment_fixed_size, found.wavefront_size) == (24, 512, 32)


def test_arguments_are_told_apart_by_who_fills_them() -> None:
    args = [
        {".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".address_space": "global", ".name": "a"},
        {".offset": 8, ".size": 4, ".value_kind": "by_value", ".name": "n", ".type_name": "int"},
        {".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"},
    ]
    (found,) = decode_metadata(note(kernel(args=args))).kernels
    assert [argument.name for argument in found.explicit] == ["a", "n"]
    assert found.hidden == {
        ArgumentKind.HIDDEN_BLOCK_COUNT_X: Argument(
            offset=16, size=4, value_kind=ArgumentKind.HIDDEN_BLOCK_COUNT_X
        )
    }


def test_a_required_work_group_size_is_kept() -> None:
    (found,) = decode_metadata(note(kernel(reqd_workgroup_size=[64, 2, 1]))).kernels
    assert found.reqd_workgroup_size == (64, 2, 1)


def test_unknown_keys_are_ignored() -> None:
    data = note(kernel(something_new=3), **{"amdhsa.other": [1, 2, 3]})
    assert decode_metadata(data).kernels[0].name == "k"


def test_an_argument_of_unknown_kind_is_refused() -> None:
    args = [{".offset": 0, ".size": 8, ".value_kind": "hidden_future"}]
    with pytest.raises(PackageError, match="hidden_future"):
        decode_metadata(note(kernel(args=args)))


def test_an_argument_beyond_the_block_is_refused_by_name() -> None:
    args = [{".offset": 20, ".size": 8, ".value_kind": "by_value", ".name": "x"}]
    with pytest.raises(PackageError, match=r"kernel 'k': argument 'x' at 20\+8 does not fit the 24 bytes"):
        decode_metadata(note(kernel(args=args)))


def test_a_missing_key_is_refused_by_name() -> None:
    incomplete = {key: value for key, value in kernel().items() if key != ".vgpr_count"}
    with pytest.raises(PackageError, match=r"missing required field `\.vgpr_count`"):
        decode_metadata(note(incomplete))


def test_a_wave_size_that_no_gpu_has_is_refused() -> None:
    with pytest.raises(PackageError, match="waves of 48 lanes"):
        decode_metadata(note(kernel(wavefront_size=48)))


def test_another_major_version_is_refused() -> None:
    with pytest.raises(PackageError, match=r"version 2\.0"):
        decode_metadata(note(**{"amdhsa.version": [2, 0]}))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa1", b"\x93\x01\x02\x03"])
def test_damaged_metadata_is_refused(data: bytes) -> None:
    with pytest.raises(PackageError, match="cannot be read"):
        decode_metadata(data)


def test_encoding_leaves_out_defaults_and_reads_back() -> None:
    entry = KernelMetadata("k", "k.kd", 8, 8, 0, 0, 32, 8, 8, 256, (Argument(0, 8, ArgumentKind.BY_VALUE),))
    metadata = Metadata((1, 2), "amdgcn-amd-amdhsa--gfx1100", (entry,))
    data = encode_metadata(metadata)
    assert decode_metadata(data) == metadata
    assert b".language" not in data
