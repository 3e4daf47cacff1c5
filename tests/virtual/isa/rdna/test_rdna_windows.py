"""Loads from local memory that are checked once for a block give what loads checked one by one give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ringfence.virtual.isa.rdna import translate, windows
from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import EITHER_WAVE, Array, Memory, Op, Words, batch, code, dispatch, run
from virtual.isa.rdna.test_rdna_local import LDS, WAIT, fill, filled

FARTHEST = 516  # bytes from an address to the end of the last load of BODY
BODY = [
    "v_mov_b32 v30, {0}",
    "s_branch @here",  # the loads begin a block, whose addresses are known then
    "here:",
    "ds_load_b128 v[40:43], v30 offset:16",
    "ds_load_2addr_b32 v[44:45], v30 offset0:1 offset1:16",
    "ds_load_2addr_stride64_b32 v[46:47], v30 offset0:1 offset1:2",
    "ds_load_b32 v48, v30",
    "v_add_nc_u32 v30, 4, v30",
    "ds_load_b32 v49, v30",
    WAIT,
]
OFFSETS = (16, 20, 24, 28, 4, 64, 256, 512, 0, 4)
LANES = np.arange(32)
PATTERNS = {
    "neighbours": LANES * 4,
    "two rows": LANES % 16 * 4 + LANES // 16 * 256,
    "one place": np.full(32, 68),
    "one place each row": LANES // 16 * 256 + 8,
    "permuted": np.concatenate([[0], np.random.default_rng(1).permutation(15) + 1, [0] * 16]) * 4,
    "twice as far": LANES * 8,
    "backwards": (31 - LANES) * 4,
    "unaligned": LANES * 4 + 3,
    "one lane unaligned": LANES * 4 + (LANES == 21),
    "one lane far": LANES * 4 + (LANES == 30) * 64,
    "up to the end": LANES % 16 * 4 + LDS - FARTHEST - 60,
    "the end everywhere": np.full(32, LDS - FARTHEST),
}
BEYOND = {
    "beyond the end": LANES % 16 * 4 + LDS - FARTHEST - 56,
    "one place beyond": np.full(32, LDS - FARTHEST + 4),
    "far beyond": LANES * 4 + (LANES == 7) * 0x7FFF0000,
    "before the start": LANES * 4 - 8,
}


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=1, strict=False)
    yield executor
    executor.close()


def loads(executor: Executor, addresses: Array, wave: int = 32) -> Words:
    """Return the dwords that BODY loads, of shape (lanes, loads)."""
    operation = Op("; ".join(BODY), len(OFFSETS))
    (found,) = batch(executor, [operation], [addresses], wave=wave, before=fill(wave), lds_bytes=LDS)
    return found


def wanted(addresses: Array) -> Words:
    """Return what they are: 0 beyond the end."""
    data = np.concatenate([filled(), np.zeros(4, np.uint8)])
    places = addresses.astype(np.int64)[:, None] + np.array(OFFSETS)
    places[(places < 0) | (places + 4 > LDS)] = LDS
    return (data[places[..., None] + np.arange(4)]).view(np.uint32)[..., 0]


@pytest.mark.parametrize("wave", EITHER_WAVE)
def test_loads_of_a_block_give_the_dwords_at_their_addresses(
    amd: Executor, lenient: Executor, wave: int
) -> None:
    addresses = np.concatenate(list(PATTERNS.values())).astype(np.uint32)
    for executor in (amd, lenient):
        assert (loads(executor, addresses, wave) == wanted(addresses)).all()


def test_lanes_beyond_the_end_read_0(lenient: Executor) -> None:
    addresses = np.concatenate(list(BEYOND.values())).astype(np.uint32)
    signed = np.concatenate(list(BEYOND.values()))
    assert (loads(lenient, addresses) == wanted(signed)).all()


@pytest.mark.parametrize("name", BEYOND)
def test_a_lane_beyond_the_end_is_a_fault_in_strict_mode(amd: Executor, name: str) -> None:
    memory = Memory()
    memory.add(0x1000_0000, BEYOND[name].astype(np.uint32))
    body = [line.format("v20") for line in BODY]
    lines = ["v_lshlrev_b32 v0, 2, v0", "global_load_b32 v20, v0, s[0:1]", "s_waitcnt vmcnt(0)", *body]
    report = run(amd, [*lines, "s_endpgm"], memory, lds_bytes=LDS)
    assert report is not None and "local memory" in report.message


def planned(lines: list[str], **changes: object) -> bool:
    """Return whether the code of a program has loads that are checked at the start of their block."""
    unit = dispatch(code((*lines, "s_endpgm")), **changes).unit(strict=True, host=False)
    text, _ = translate.Translator(unit).run()
    return "permvar" in text


@pytest.mark.skipif(not windows.available(), reason="this host does not permute 16 dwords at once")
def test_blocks_are_checked_at_their_start_where_addresses_and_lanes_are_known() -> None:
    body = [line.format("v0") for line in BODY]
    assert planned(body)
    assert not planned([*body[:3], "v_mov_b32 v30, v0", *body[3:]])  # written in the block
    assert not planned([*body[:3], "s_mov_b32 exec_lo, 1", *body[3:]])  # other lanes
    assert not planned(body, local=(31, 1, 1))
    assert not planned([*body[:3], body[6], WAIT])  # one load is not worth it
