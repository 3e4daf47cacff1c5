"""Loading code objects: what is checked, where things are placed, and which relocations are applied."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ringfence.errors import PackageError
from ringfence.hardware.amd.code_object import PAGE, load_code_object
from ringfence.hardware.amd.elf import MACHINES
from ringfence.hardware.amd.metadata import Argument, ArgumentKind, KernelMetadata, Metadata
from tests.hardware.amd.elfwriter import (
    ALLOC,
    DESCRIPTOR,
    DYN,
    END,
    EXEC,
    FUNC,
    NOBITS,
    OBJECT,
    WRITE,
    Elf,
    Part,
)
from tests.hardware.amd.elfwriter import kernel_object as written
from tests.oracle.llvm import assemble_object

KERNEL = KernelMetadata(
    name="k",
    symbol="k.kd",
    kernarg_segment_size=16,
    kernarg_segment_align=8,
    group_segment_fixed_size=0,
    private_segment_fixed_size=0,
    wavefront_size=32,
    sgpr_count=8,
    vgpr_count=2,
    max_flat_workgroup_size=256,
    args=(
        Argument(offset=0, size=8, value_kind=ArgumentKind.GLOBAL_BUFFER, name="out", address_space="global"),
        Argument(offset=8, size=4, value_kind=ArgumentKind.HIDDEN_BLOCK_COUNT_X),
    ),
)
METADATA = Metadata(version=(1, 2), target="amdgcn-amd-amdhsa--gfx1100", kernels=(KERNEL,))


def word(image: bytes | bytearray, offset: int, size: int = 8) -> int:
    return int.from_bytes(image[offset : offset + size], "little")


def linked(**changes: object) -> Elf:
    """Return a linked file: a descriptor at 0x40, code at 0x1100, data with zeros behind it at 0x2000."""
    descriptor = replace(DESCRIPTOR, entry_offset=0x1100 - 0x40)
    elf = Elf(
        [
            Part(".text", END, flags=ALLOC | EXEC, align=256, address=0x1100),
            Part(".rodata", descriptor.pack(), align=64, address=0x40),
            Part(".data", bytes(16), flags=ALLOC | WRITE, address=0x2000),
        ],
        [("k", ".text", 0x1100, 4, FUNC), ("k.kd", ".rodata", 0x40, 64, OBJECT)],
        {".data": []},
        [
            (0, 0x80, bytes(0x40) + descriptor.pack(), 4),
            (0x1100, 0x100, END * 64, 5),
            (0x2000, 0x40, bytes(range(16)), 6),
        ],
        kind=DYN,
    )
    for key, value in changes.items():
        setattr(elf, key, value)
    return elf


class TestHeader:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"machine": 62}, "for machine .*, not for AMD GPUs"),
            ({"osabi": 0}, "OS ABI 0, not for HSA"),
            ({"abi": 9}, r"ABI version 9; known are 2 \(V4\), 3 \(V5\), 4 \(V6\)"),
            ({"flags": 0xFE}, "for GPU 0xfe, which is not among .*gfx1100"),
            ({"kind": 2}, "type ET_EXEC; a code object is ET_DYN .* or ET_REL"),
            ({"class_": 1}, "are 010101 instead of 020101"),
        ],
    )
    def test_other_files_are_refused(self, changes: dict[str, int], message: str) -> None:
        with pytest.raises(PackageError, match=message):
            load_code_object(written(**changes).write())

    def test_what_is_no_elf_file_is_refused(self) -> None:
        with pytest.raises(PackageError, match="starts with 23212f62 instead of 7f454c46"):
            load_code_object(b"#!/bin/sh\n")

    def test_a_header_alone_is_refused(self) -> None:
        with pytest.raises(PackageError, match="has 20 bytes, less than an ELF header"):
            load_code_object(written().write()[:20])

    @pytest.mark.parametrize(("flags", "arch"), [(0x41, "gfx1100"), (0x4C, "gfx942"), (0x4E, "gfx1201")])
    def test_the_architecture_comes_from_the_flags(self, flags: int, arch: str) -> None:
        loaded = load_code_object(assemble_object("s_endpgm", cpu=arch))
        assert (loaded.arch, loaded.flags & 0xFF) == (arch, flags)

    @pytest.mark.parametrize("arch", ["gfx90a", "gfx1030"])
    def test_what_no_device_here_has_is_refused_by_name(self, arch: str) -> None:
        machine = {name: number for number, name in MACHINES.items()}[arch]
        with pytest.raises(PackageError, match=f"cannot be used here: .*{arch}"):
            load_code_object(written(flags=machine).write())

    def test_the_version_comes_from_the_abi(self) -> None:
        assert [load_code_object(written(abi=abi).write()).version for abi in (2, 3, 4)] == [4, 5, 6]


class TestUnlinked:
    def test_the_descriptor_finds_its_code(self) -> None:
        loaded = load_code_object(written().write())
        kernel = loaded.kernel("k")
        assert loaded.image[kernel.entry : kernel.entry + 4] == END
        assert kernel.entry == kernel.descriptor_address + kernel.descriptor.entry_offset
        assert loaded.symbols == {"k": kernel.entry, "k.kd": kernel.descriptor_address}

    def test_sections_are_aligned_and_code_is_last(self) -> None:
        loaded = load_code_object(written().write())
        assert loaded.code == ((256, 512),)
        assert len(loaded.image) % PAGE == 0
        assert len(loaded.image) >= 512 + 256, "room for the instruction fetch"

    def test_a_section_of_zeros_takes_memory(self) -> None:
        elf = written()
        elf.parts.append(Part(".bss", kind=NOBITS, flags=ALLOC | WRITE, size=5000))
        elf.symbols.append(("zeros", ".bss", 8, 4, OBJECT))
        loaded = load_code_object(elf.write())
        assert len(loaded.image) == 2 * PAGE
        assert loaded.symbols["zeros"] == 64 + 8

    def test_relocations_of_sections_that_are_not_loaded_are_ignored(self) -> None:
        elf = written()
        elf.parts.append(Part(".debug", bytes(16), flags=0))
        elf.relocations[".debug"] = [(0, 6, "k", 0)]
        assert load_code_object(elf.write()).kernel().name == "k"

    def test_a_wrong_alignment_is_refused(self) -> None:
        elf = written()
        elf.parts[1].align = 48
        with pytest.raises(PackageError, match=r"'\.rodata' is aligned to 48"):
            load_code_object(elf.write())


class TestRelocations:
    def patched(self, *records: tuple[int, int, str, int]) -> tuple[bytearray, int, int]:
        """Return the image at 0x10000 of a file with a data section that has ``records``, and two offsets."""
        elf = written()
        elf.parts.append(Part(".data", bytes(32), flags=ALLOC | WRITE))
        elf.symbols.append(("table", ".data", 0, 32, OBJECT))
        elf.symbols.append(("nowhere", "", 0, 0, FUNC))
        elf.relocations[".data"] = list(records)
        loaded = load_code_object(elf.write())
        return loaded.at(0x10000), loaded.symbols["table"], loaded.symbols["k"]

    def test_abs64_is_the_address_of_the_symbol(self) -> None:
        image, table, code = self.patched((8, 3, "k", 4))
        assert word(image, table + 8) == 0x10000 + code + 4

    def test_rel64_is_the_distance_to_the_symbol(self) -> None:
        image, table, code = self.patched((8, 5, "k", 4))
        assert word(image, table + 8) == code + 4 - (table + 8)

    def test_rel32_lo_and_hi_are_halves_of_the_distance(self) -> None:
        image, table, _ = self.patched((16, 10, "table", 0), (20, 11, "table", 4))
        assert (word(image, table + 16, 4), word(image, table + 20, 4)) == (0xFFFFFFF0, 0xFFFFFFFF)

    def test_relative64_is_the_load_address_and_the_addend(self) -> None:
        elf = linked(relocations={".data": [(0x2008, 13, "", 0x1100)]})
        assert word(load_code_object(elf.write()).at(0x50000), 0x2008) == 0x51100

    def test_no_relocation_does_nothing(self) -> None:
        image, table, _ = self.patched((8, 0, "", 0))
        assert word(image, table + 8) == 0

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            (1, "R_AMDGPU_ABS32_LO"),
            (2, "R_AMDGPU_ABS32_HI"),
            (4, "R_AMDGPU_REL32"),
            (6, "R_AMDGPU_ABS32"),
            (7, "R_AMDGPU_GOTPCREL"),
            (8, "R_AMDGPU_GOTPCREL32_LO"),
            (9, "R_AMDGPU_GOTPCREL32_HI"),
            (14, "R_AMDGPU_REL16"),
            (77, "number 77"),
        ],
    )
    def test_other_relocations_are_refused_by_name(self, kind: int, name: str) -> None:
        with pytest.raises(
            PackageError, match=rf"needs relocation {name} at .*R_AMDGPU_ABS64.*link it first"
        ):
            self.patched((8, kind, "k", 0))

    def test_a_symbol_of_elsewhere_is_refused_by_name(self) -> None:
        with pytest.raises(PackageError, match="R_AMDGPU_ABS64 at 0x8 refers to 'nowhere'"):
            self.patched((8, 3, "nowhere", 0))

    def test_a_place_outside_the_image_is_refused(self) -> None:
        with pytest.raises(PackageError, match="outside the image"):
            self.patched((0x100000, 3, "k", 0))

    def test_a_load_address_inside_a_page_is_an_error_of_the_caller(self) -> None:
        with pytest.raises(ValueError, match="multiple of 4096"):
            load_code_object(written().write()).at(0x10010)


class TestLinked:
    def test_segments_are_placed_by_their_address(self) -> None:
        loaded = load_code_object(linked().write())
        assert loaded.kernel().entry == 0x1100
        assert loaded.code == ((0x1100, 0x1200),)
        assert loaded.image[0x2000:0x2040] == bytes(range(16)) + bytes(48)

    def test_overlapping_segments_are_refused(self) -> None:
        elf = linked()
        elf.segments[2] = (0x1180, 0x40, b"", 6)
        with pytest.raises(PackageError, match="segments overlap at 0x1180"):
            load_code_object(elf.write())

    def test_a_segment_larger_than_its_memory_is_refused(self) -> None:
        elf = linked()
        elf.segments[2] = (0x2000, 8, bytes(16), 6)
        with pytest.raises(PackageError, match=r"16 bytes at .* for 8 bytes of memory"):
            load_code_object(elf.write())

    def test_an_address_beyond_reason_is_refused(self) -> None:
        elf = linked()
        elf.segments[2] = (1 << 40, 8, b"", 6)
        with pytest.raises(PackageError, match="ends at address 0x10000000008"):
            load_code_object(elf.write())

    def test_a_file_without_segments_is_refused(self) -> None:
        with pytest.raises(PackageError, match="no segment to load"):
            load_code_object(linked(segments=[]).write())


class TestKernels:
    def test_the_only_kernel_needs_no_name(self) -> None:
        assert load_code_object(written("add").write()).kernel().name == "add"

    def test_an_unknown_name_lists_those_that_exist(self) -> None:
        with pytest.raises(PackageError, match="no kernel 'sub'; it has: add"):
            load_code_object(written("add").write()).kernel("sub")

    def test_no_kernel_is_no_error_until_one_is_asked_for(self) -> None:
        loaded = load_code_object(written(symbols=[("k", ".text", 0, 4, FUNC)]).write())
        with pytest.raises(PackageError, match="has 0 kernels"):
            loaded.kernel()

    def test_an_entry_that_is_no_code_is_refused(self) -> None:
        with pytest.raises(PackageError, match="starts at 0x0, which is no code"):
            load_code_object(written(relocations={".rodata": [(16, 5, "k.kd", 16)]}).write())

    def test_a_descriptor_outside_the_image_is_refused(self) -> None:
        elf = written()
        elf.symbols[1] = ("k.kd", ".rodata", 1 << 20, 64, OBJECT)
        with pytest.raises(PackageError, match="descriptor of kernel 'k' at 0x100000 is outside"):
            load_code_object(elf.write())


class TestMetadata:
    def test_it_belongs_to_the_kernel(self) -> None:
        kernel = load_code_object(written(metadata=METADATA).write()).kernel("k")
        assert kernel.metadata == KERNEL
        assert [argument.name for argument in KERNEL.explicit] == ["out"]
        assert KERNEL.hidden[ArgumentKind.HIDDEN_BLOCK_COUNT_X].offset == 8

    def test_a_kernel_without_descriptor_is_refused(self) -> None:
        with pytest.raises(PackageError, match=r"descriptors that do not exist: k\.kd"):
            load_code_object(written("other", metadata=METADATA).write())

    def test_another_wave_size_than_the_descriptor_is_refused(self) -> None:
        elf = written(metadata=METADATA)
        elf.parts[1].data = replace(DESCRIPTOR, properties=8).pack()
        with pytest.raises(
            PackageError, match="waves of 64 lanes by its descriptor and of 32 by the metadata"
        ):
            load_code_object(elf.write())

    def test_what_is_no_messagepack_is_refused(self) -> None:
        with pytest.raises(PackageError, match="metadata of the code object cannot be read"):
            load_code_object(written(metadata=b"\xc1\xc1").write())


class TestDamage:
    """Whatever happens to a file, the error says that the file is wrong."""

    @pytest.mark.parametrize("elf", [written(metadata=METADATA), linked(metadata=METADATA)])
    def test_a_cut_file_is_refused(self, elf: Elf) -> None:
        data = elf.write()
        for length in range(0, len(data), 61):
            with pytest.raises(PackageError):
                load_code_object(data[:length])

    @pytest.mark.parametrize("elf", [written(metadata=METADATA), linked(metadata=METADATA)])
    def test_a_changed_byte_is_refused_or_loads(self, elf: Elf) -> None:
        assert damage(elf.write(), random.Random(1), 200) == {"loaded", "refused"}

    @pytest.mark.conformance
    @pytest.mark.parametrize("elf", [written(metadata=METADATA), linked(metadata=METADATA)])
    def test_many_changed_bytes_are_refused_or_load(self, elf: Elf) -> None:
        assert damage(elf.write(), random.Random(2), 5000) == {"loaded", "refused"}


def damage(data: bytes, rng: random.Random, times: int) -> set[str]:
    """Change bytes of a file and return what came of loading it."""
    outcomes = set()
    for _ in range(times):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 4])):
            damaged[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        try:
            load_code_object(bytes(damaged))
            outcomes.add("loaded")
        except PackageError:
            outcomes.add("refused")
    return outcomes
