"""The commands of the compute queue, and the programs that the driver brings along."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.cli.bench import _ADD_GFX11
from ringfence.drivers.amd import encode
from ringfence.drivers.amd.copy_programs import copy_element_bytes, copy_words
from ringfence.drivers.amd.encode import Commands, Scratch
from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import CHIPS, chip_by_name
from ringfence.hardware.amd.elf import read_elf

# ----- scratch memory: values of ROCm's runtime for 64 bytes per work-item ---------------------------

WORKED = {
    "gfx1100": (0xC00000, 16, 512, 0x00010200),
    "gfx1201": (0x800000, 16, 512, 0x00010200),
    "gfx942": (0x4C0000, 4, 1216, 0x000044C0),
}


@pytest.mark.parametrize("name", WORKED)
def test_scratch_memory_is_sized_by_waves_and_compute_units(name: str) -> None:
    nbytes, units, waves, register = WORKED[name]
    chip = chip_by_name(name)
    scratch = Scratch.of(chip.node(), 64)
    assert (scratch.nbytes, scratch.wave_units, scratch.waves) == (nbytes, units, waves)
    dwords = struct.unpack("<5I", encode.scratch_dwords(chip.target, 0x7F00_1234_5600, scratch))
    assert dwords == (0x7F_0012_3456 & 0xFFFFFFFF, 0x7F, 0xC0017600, 0x218, register)


@pytest.mark.parametrize("private", [1, 4, 5, 260, 2052])
def test_scratch_memory_holds_what_a_work_item_needs_in_whole_units(private: int) -> None:
    scratch = Scratch.of(chip_by_name("gfx1100").node(), private)
    assert private <= scratch.per_item < private + 4
    assert scratch.wave_units * 256 == scratch.per_item * encode.LANES


# ----- packets --------------------------------------------------------------------------------------


def test_synchronisation_is_encoded_as_documented_streams_have_it() -> None:
    commands = Commands((11, 0, 0))
    encode.begin(commands)
    encode.barrier(commands)
    position = encode.signal(commands)
    encode.interrupt(commands, 0x7F00_0000_1008, 3)
    assert commands.words == [
        *(0xC0053C00, 0x43, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4),  # flush the HDP
        *(0xC0065800, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0x0000C3F1),  # acquire everything
        *(0xC0004600, 0x407),  # wait for the shaders
        *(0xC0065800, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0x000003F0),  # acquire what shaders wrote
        *(0xC0064900, 0x0070F514, 0x20000000, 0, 0, 0, 0, 0),  # flush, then signal
        *(0xC0064900, 0x00000514, 0x22000000, 0x1008, 0x7F00, 3, 0, 3),  # event slot, then interrupt
    ]
    assert commands.words[position] == 0 and position == 7 + 8 + 2 + 8 + 3


def test_the_ring_packet_names_the_commands() -> None:
    assert encode.indirect_buffer(0x7F12_3456_7000, 400) == (0xC0023F00, 0x34567000, 0x7F12, 100 | 1 << 23)


def test_gfx9_synchronises_as_documented_streams_have_it() -> None:
    commands = Commands((9, 4, 2))
    encode.begin(commands)
    encode.barrier(commands)
    encode.signal(commands)
    encode.interrupt(commands, 0x7F00_0000_1008, 3)
    assert commands.words == [
        *(0xC0053C00, 0x43, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4),  # flush the HDP
        *(0xC0055800, 0x28C40000, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 10),  # acquire everything
        *(0xC0004600, 0x407),  # wait for the shaders
        *(0xC0055800, 0x08400000, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 10),  # acquire what shaders wrote
        *(0xC0064900, 0x00088514, 0x20000000, 0, 0, 0, 0, 0),  # flush, then signal
        *(0xC0064900, 0x00000514, 0x22000000, 0x1008, 0x7F00, 3, 0, 3),  # event slot, then interrupt
    ]


@pytest.mark.parametrize("name", CHIPS)
def test_each_generation_has_its_own_commands(name: str) -> None:
    chip = chip_by_name(name)
    commands = Commands(chip.target)
    encode.begin(commands)
    encode.barrier(commands)
    encode.time_stamp(commands, encode.Absolute(0x1000))
    encode.wait(commands)
    at = 0
    while at < len(commands.words):
        packet = pm4.decode_packet(chip.generation, commands.words, at)
        assert packet is not None
        at += packet.length


# ----- programs -------------------------------------------------------------------------------------

COPY = """
 s_load_b128 s[4:7], s[0:1], 0x0
 s_load_b32 s8, s[0:1], 0x10
 s_lshl_b32 s9, s15, 8
 v_add_nc_u32 v0, s9, v0
 s_waitcnt lgkmcnt(0)
 v_cmpx_gt_u32_e64 s8, v0
 s_cbranch_execz end
 v_mov_b32 v1, 0
 v_lshlrev_b64 v[0:1], {shift}, v[0:1]
 v_add_co_u32 v2, vcc_lo, s6, v0
 v_add_co_ci_u32_e64 v3, null, s7, v1, vcc_lo
 global_load_{load} {data}, v[2:3], off
 v_add_co_u32 v0, vcc_lo, s4, v0
 v_add_co_ci_u32_e64 v1, null, s5, v1, vcc_lo
 s_waitcnt vmcnt(0)
 global_store_{store} v[0:1], {data}, off
end:
 s_endpgm
"""
ADD = """
 s_load_b128 s[4:7], s[0:1], 0x0
 s_load_b64 s[8:9], s[0:1], 0x10
 s_lshl_b32 s2, s15, 6
 v_add_nc_u32 v0, s2, v0
 v_lshlrev_b32 v0, 2, v0
 s_waitcnt lgkmcnt(0)
 global_load_b32 v1, v0, s[6:7]
 global_load_b32 v2, v0, s[8:9]
 s_waitcnt vmcnt(0)
 v_add_f32 v1, v1, v2
 global_store_b32 v0, v1, s[4:5]
 s_endpgm
"""
PROGRAMS = {
    "copy1": (COPY.format(shift=0, load="u8", store="b8", data="v4"), copy_words(1)),
    "copy4": (COPY.format(shift=2, load="b32", store="b32", data="v4"), copy_words(4)),
    "copy16": (COPY.format(shift=4, load="b128", store="b128", data="v[4:7]"), copy_words(16)),
    "add": (ADD, _ADD_GFX11),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_machine_code_is_what_llvm_assembles(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    text, words = PROGRAMS[name]
    source, target = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text(text)
    options = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-c", str(source), "-o", str(target)]
    subprocess.run([sys.executable, "-m", "ziglang", "clang", *options], check=True)
    section = next(each for each in read_elf(target.read_bytes()).sections if each.name == ".text")
    assert struct.unpack_from(f"<{len(words)}I", section.data) == words


def test_a_copy_uses_the_widest_element_that_fits() -> None:
    assert [copy_element_bytes(*sides) for sides in ((0, 16, 32), (4, 16, 32), (0, 0, 20), (1, 0, 4))] == [
        16,
        4,
        4,
        1,
    ]
