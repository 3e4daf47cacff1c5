"""The compute state of a virtual Adreno a6xx: registers and loaded state, and the launch that they add up to.

A submission starts with nothing written and nothing loaded: another context may have run in between, and
KGSL contexts made with PREAMBLE promise to restore what they need. A launch that lacks something, or whose
registers contradict each other or what was loaded, is refused with a
:class:`~ringfence.virtual.checks.BadState` that names it.

What tinygrad's ``ops_qcom.py`` writes and the register description does not quite allow is tolerated, and
only that: CONST_CONFIG with CONSTLEN 0, TSIZE and USIZE above the real counts, KERNEL_GROUP equal to the
group counts, PVT_MEM_STACK_OFFSET without its shift, BRANCHSTACK beyond Mesa's formula, textures from the
17th on that are only found through TEXMEMOBJ_BASE, constants loaded past the end of their object.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.descriptors import (
    BORDER_COLOR_BYTES,
    TEXTURE_BYTES,
    Sampler,
    Texture,
    Wrap,
    unpack_sampler,
    unpack_texture,
)
from ringfence.hardware.adreno.packets import (
    LOAD_STATE6_0,
    STATE_UNIT_BYTES,
    StateBlock,
    StateSource,
    StateType,
)
from ringfence.hardware.adreno.program import INSTRUCTION_BYTES, INSTRUCTION_UNIT
from ringfence.hardware.fields import Register
from ringfence.virtual.checks import BadState
from ringfence.virtual.memory import AddressSpace

if TYPE_CHECKING:
    from ringfence.virtual.isa.ir3.dispatch import Dispatch

VEC4 = 16
POISON = b"\xef\xbe\xad\xde"  # constants that no load has filled
MAX_WORKGROUP = 1024
PRELOADED_TEXTURES = 16  # tinygrad loads at most these; the rest is fetched through TEXMEMOBJ_BASE
PRIVATE_UNIT = 512
PRIVATE_SIZE_UNIT = 4096
SHARED_UNIT = 1024
SHARED_REGISTERS = range(0xC0, 0xE0)  # r48.x to r55.w
GENERAL_REGISTERS = range(0xC0)
CONSTANT_FILES = {
    reg.ConstantRamMode.CONSTLEN_128: 128,
    reg.ConstantRamMode.CONSTLEN_192: 192,
    reg.ConstantRamMode.CONSTLEN_256: 256,
    reg.ConstantRamMode.CONSTLEN_512: 512,
}


_CS_STATE = reg.SP_UPDATE_CNTL.FIELDS["CS_STATE"].mask
_CS_UAV = reg.SP_UPDATE_CNTL.FIELDS["CS_UAV"].mask


def _unknown_bits(register: type[Register]) -> int:
    if register.WIDTH_BITS == 64 or register is reg.SP_CS_PVT_MEM_STACK_OFFSET:
        return 0  # the latter overflows its field in tinygrad's streams; only programs with calls use it
    return register.unknown(0xFFFFFFFF)


_UNKNOWN_BITS = {offset: _unknown_bits(register) for offset, register in reg.REGISTERS.items()}
_READ_ONLY = frozenset(reg.CP_ALWAYS_ON_COUNTER.offsets())


@functools.cache
def _span(first: int, count: int) -> tuple[range, tuple[int, ...], bool]:
    """Return the offsets, their reserved bits, and whether SP_UPDATE_CNTL is among them."""
    offsets = range(first, first + count)
    for offset in offsets:
        if offset not in reg.REGISTERS:
            raise BadState(f"register {offset:#06x} is not a compute register of this chip family")
        if offset in _READ_ONLY:
            raise BadState(f"{reg.register_name(offset)} is read-only")
    return offsets, tuple(_UNKNOWN_BITS[offset] for offset in offsets), reg.SP_UPDATE_CNTL.OFFSET in offsets


@functools.lru_cache(1024)
def _load_words(word: int) -> tuple[tuple[StateBlock, StateType], int, int, int]:
    """Return what LOAD_STATE6 loads by payload dword 0: state, source, first unit, number of units."""
    get = LOAD_STATE6_0.get
    key = _compute_state(get(word, "STATE_BLOCK"), get(word, "STATE_TYPE"))
    source, count = get(word, "STATE_SRC"), get(word, "NUM_UNIT")
    if source not in (StateSource.DIRECT, StateSource.INDIRECT):
        raise BadState(
            f"LOAD_STATE6 from {StateSource(source).name} is not modelled: only DIRECT and INDIRECT are"
        )
    if count == 0:
        raise BadState("LOAD_STATE6 of 0 units")
    return key, source, get(word, "DST_OFF"), count


@dataclass(slots=True)
class _Loaded:
    """Units of one kind of state, and the address that they came from (``None``: inline or mixed)."""

    units: dict[int, bytes] = field(default_factory=dict)
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """What the registers say about a launch, apart from addresses and loaded state."""

    local: tuple[int, int, int]
    global_size: tuple[int, int, int]
    global_offset: tuple[int, int, int]
    threads: int
    full_registers: int
    half_registers: int
    merged: bool
    shared_bytes: int
    private_bytes: int
    private_total: int
    constant_vec4: int
    constants_enabled: bool
    code_units: int
    entry: int
    textures: int
    samplers: int
    uavs: int
    demote_constants: bool
    isam_mode: str
    workgroup_id_register: int
    workgroup_size_register: int
    workgroup_offset_register: int
    local_id_register: int
    linear_id_register: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Registers by offset and loaded state, as they are at one moment.

    ``constants`` is the whole constant file, ``code`` the shader that was loaded, ``units`` what else was, by
    block and type, then by unit.
    """

    registers: dict[int, int]
    constants: bytes
    code: bytes
    units: dict[tuple[StateBlock, StateType], dict[int, bytes]]


class ComputeState:
    """Registers and loaded state of one submission."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.registers: dict[int, int] = {}
        self.compute_marker = False
        self._poison = POISON * (chip.constants_vec4 * VEC4 // len(POISON))
        self._constants = bytearray()
        self._constants_loaded = False
        self._loaded: dict[tuple[StateBlock, StateType], _Loaded] = {}
        self._shader: tuple[int | None, bytes] | None = None
        self._invalidate_compute()

    # ----- writes -----------------------------------------------------------------------------

    def write(self, first: int, values: Sequence[int]) -> None:
        """Write consecutive registers; :class:`BadState` for unknown registers or reserved bits."""
        offsets, reserved, updates = _span(first, len(values))
        if any(map(operator.and_, values, reserved)):
            self._refuse_reserved(offsets, values, reserved)
        self.registers.update(zip(offsets, values))
        if updates:
            self._update(values[reg.SP_UPDATE_CNTL.OFFSET - first])

    @staticmethod
    def _refuse_reserved(offsets: range, values: Sequence[int], reserved: Sequence[int]) -> None:
        for offset, value, bits in zip(offsets, values, reserved):
            if value & bits:
                raise BadState(
                    f"{reg.register_name(offset)} := {value:#x} sets reserved bits {value & bits:#x}"
                )

    def _update(self, value: int) -> None:
        if value & _CS_STATE:
            self._invalidate_compute()
        if value & _CS_UAV:
            self._loaded.pop((StateBlock.CS_SHADER, StateType.UAV), None)

    def invalidate(self) -> None:
        """Drop everything that was loaded."""
        self._invalidate_compute()
        self._loaded.clear()

    def _invalidate_compute(self) -> None:
        self._constants = bytearray(self._poison)
        self._constants_loaded = False
        self._shader = None
        for key in [key for key in self._loaded if key != (StateBlock.CS_SHADER, StateType.UAV)]:
            del self._loaded[key]

    def load(self, word: int, address: int, inline: bytes, memory: AddressSpace) -> None:
        """Execute LOAD_STATE6 with payload dword 0 ``word``, from ``address`` or from ``inline`` data."""
        key, source, first, count = _load_words(word)
        unit = STATE_UNIT_BYTES[key]
        if source == StateSource.DIRECT:
            data = _inline(inline, count * unit, address)
            self._store(key, first, data, unit, None)
        else:
            _no_inline(inline)
            constants = key == (StateBlock.CS_SHADER, StateType.CONSTANTS)
            read = _read_constants if constants else AddressSpace.read
            self._store(key, first, read(memory, address, count * unit), unit, address)

    def _store(
        self, key: tuple[StateBlock, StateType], first: int, data: bytes, unit: int, address: int | None
    ) -> None:
        if key == (StateBlock.CS_SHADER, StateType.CONSTANTS):
            self._load_constants(first, data)
        elif key == (StateBlock.CS_SHADER, StateType.SHADER):
            if first:
                raise BadState(f"shader load at unit {first}: only loads from unit 0 are modelled")
            self._shader = address, _intern(address, data)
        else:
            loaded = self._loaded.setdefault(key, _Loaded(address=address if first == 0 else None))
            if address is None or loaded.address is None or address != loaded.address + first * unit:
                loaded.address = address if first == 0 else None
            for i in range(len(data) // unit):
                loaded.units[first + i] = data[i * unit : (i + 1) * unit]

    def _load_constants(self, first: int, data: bytes) -> None:
        end = first * VEC4 + len(data)
        if end > len(self._constants):
            raise BadState(
                f"constant load of vec4 {first}..{end // VEC4} runs past the "
                f"{self.chip.constants_vec4} of the chip"
            )
        if first % 4:
            raise BadState(f"constant load at vec4 {first}: the hardware expects multiples of 4")
        self._constants[first * VEC4 : end] = data
        self._constants_loaded = True

    def snapshot(self) -> Snapshot:
        """Return a copy of everything, for comparison and for display."""
        _, code = self._shader or (None, b"")
        units = {key: dict(loaded.units) for key, loaded in self._loaded.items()}
        return Snapshot(dict(self.registers), bytes(self._constants), code, units)

    # ----- launch -----------------------------------------------------------------------------

    def launch(self) -> Launch:
        """Return what the registers say; :class:`BadState` names what is missing or contradictory."""
        values = tuple(map(self.registers.get, _LAUNCH_REGISTERS))
        if None in values:
            missing = reg.register_name(_LAUNCH_REGISTERS[values.index(None)])
            raise BadState(f"launch without {missing}: it was not written in this submission")
        if not self.compute_marker:
            raise BadState("launch without SET_MARKER COMPUTE in this submission")
        if self.chip.lpac:
            self._check_copies()
        return _launch(self.chip, values)

    def _check_copies(self) -> None:
        """Chips with two compute pipes take some state from both of two registers, which must agree."""
        for copy, original in _COPIES:
            value, expected = self.registers.get(copy.OFFSET), self.registers[original.OFFSET]
            if value != expected:
                found = "was not written" if value is None else f"is {value:#x}"
                raise BadState(
                    f"{copy.__name__} {found}: on {self.chip.name} it must be {expected:#x}, as "
                    f"{original.__name__} is"
                )

    def dispatch(self, groups: tuple[int, int, int], launch: Launch, memory: AddressSpace) -> Dispatch:
        """Return the program run that the state describes, for ``groups`` work-groups."""
        from ringfence.virtual.isa.ir3.dispatch import Dispatch

        code, name = self._code(launch, memory)
        samplers = self._samplers(launch)
        if launch.private_bytes:
            self._check_private_memory(launch, memory)
        return Dispatch(
            name=name,
            code=code,
            groups=groups,
            local=launch.local,
            constants=self._constant_file(launch),
            full_registers=launch.full_registers,
            half_registers=launch.half_registers,
            merged=launch.merged,
            threads=launch.threads,
            workgroup_id_register=launch.workgroup_id_register,
            workgroup_size_register=launch.workgroup_size_register,
            workgroup_offset_register=launch.workgroup_offset_register,
            local_id_register=launch.local_id_register,
            linear_id_register=launch.linear_id_register,
            shared_bytes=launch.shared_bytes,
            private_bytes=launch.private_bytes,
            demote_constants=launch.demote_constants,
            isam_mode=launch.isam_mode,
            chip=self.chip.name,
            entry=launch.entry,
            textures=self._textures(launch, memory),
            uavs=self._uavs(launch),
            samplers=samplers,
            borders=tuple(self._border(sampler, memory) for sampler in samplers),
            global_offset=launch.global_offset,
        )

    def _code(self, launch: Launch, memory: AddressSpace) -> tuple[bytes, str]:
        base = self._address(reg.SP_CS_BASE)
        if self._shader is None:
            raise BadState("launch without a shader load since SP_UPDATE_CNTL invalidated the compute state")
        address, code = self._shader
        if address is not None and address != base:
            raise BadState(f"the shader was loaded from {address:#x}, but SP_CS_BASE is {base:#x}")
        size = launch.code_units * INSTRUCTION_UNIT
        self._check_preload(launch, len(code) // INSTRUCTION_UNIT)
        if len(code) < size:  # the rest is fetched when it is reached
            code += memory.read(base + len(code), size - len(code))
        inside = memory.find(base)
        name = inside.label if inside is not None and inside.label else f"shader@{base:#x}"
        return code if len(code) == size else code[:size], name

    def _check_preload(self, launch: Launch, loaded: int) -> None:
        needed = min(launch.code_units, self.chip.instruction_cache_units)
        if loaded < needed:
            raise BadState(f"SP_CS_INSTR_SIZE is {launch.code_units} units, but only {loaded} were loaded")
        if loaded > self.chip.preload_units:
            raise BadState(
                f"{loaded} units of code were loaded; "
                f"{self.chip.name} can be loaded {self.chip.preload_units}"
            )

    def _constant_file(self, launch: Launch) -> bytes:
        if not launch.constants_enabled:
            return self._poison
        if not self._constants_loaded:
            raise BadState(
                "launch without a constant load since SP_UPDATE_CNTL invalidated the compute state"
            )
        size = launch.constant_vec4 * VEC4
        if size >= len(self._constants):
            return bytes(self._constants)
        return bytes(self._constants[:size]) + self._poison[size:]

    def _check_private_memory(self, launch: Launch, memory: AddressSpace) -> None:
        base = self._address(reg.SP_CS_PVT_MEM_BASE)
        size = launch.private_total * self.chip.sp_cores
        covered = base
        while covered < base + size:
            inside = memory.find(covered)
            if inside is None or not inside.writable:
                raise BadState(
                    f"private memory {base:#x}..{base + size:#x} is not mapped for writing at {covered:#x}: "
                    f"{memory.nearest(covered)}"
                )
            covered = inside.end

    def _textures(self, launch: Launch, memory: AddressSpace) -> tuple[Texture | None, ...]:
        if not launch.textures:
            return ()
        base = self._address(reg.SP_CS_TEXMEMOBJ_BASE)
        loaded = self._units("texture", StateBlock.CS_TEX, StateType.CONSTANTS, base)
        textures = []
        for i in range(launch.textures):
            data = loaded.get(i)
            if data is None and i >= PRELOADED_TEXTURES:
                data = memory.read(base + i * TEXTURE_BYTES, TEXTURE_BYTES)
            textures.append(_unpack(_texture, "texture", i, data, launch.textures))
        return tuple(textures)

    def _uavs(self, launch: Launch) -> tuple[Texture | None, ...]:
        if not launch.uavs:
            return ()
        base = self._address(reg.SP_CS_UAV_BASE)
        loaded = self._units("UAV", StateBlock.CS_SHADER, StateType.UAV, base)
        return tuple(_unpack(_texture, "UAV", i, loaded.get(i), launch.uavs) for i in range(launch.uavs))

    def _samplers(self, launch: Launch) -> tuple[Sampler, ...]:
        if not launch.samplers:
            return ()
        base = self._address(reg.SP_CS_SAMPLER_BASE)
        loaded = self._units("sampler", StateBlock.CS_TEX, StateType.SHADER, base)
        count = launch.samplers
        return tuple(_unpack(_sampler, "sampler", i, loaded.get(i), count) for i in range(count))

    def _border(self, sampler: Sampler, memory: AddressSpace) -> bytes | None:
        """Return the border colour in memory that a sampler uses, ``None`` if none or transparent black."""
        if sampler.fast_border is not None or Wrap.CLAMP_TO_BORDER not in sampler.wrap:
            return None
        colour = memory.read(
            self._address(reg.TPL1_CS_BORDER_COLOR_BASE) + sampler.border, BORDER_COLOR_BYTES
        )
        return colour if any(colour) else None

    def _units(self, what: str, block: StateBlock, kind: StateType, base: int) -> dict[int, bytes]:
        loaded = self._loaded.get((block, kind))
        if loaded is None:
            raise BadState(f"launch with {what}s, but none was loaded since SP_UPDATE_CNTL invalidated them")
        if loaded.address is not None and loaded.address != base:
            raise BadState(
                f"the {what} descriptors were loaded from {loaded.address:#x}, "
                f"but the base register says {base:#x}"
            )
        return loaded.units

    def _address(self, register: type[Register]) -> int:
        low, high = map(self.registers.get, register.offsets())
        if low is None or high is None:
            raise BadState(f"launch without {register.__name__}: it was not written in this submission")
        address = high << 32 | low
        alignment = reg.ALIGNMENT.get(register, 4)
        if address % alignment:
            raise BadState(f"{register.__name__} = {address:#x} is not {alignment}-byte aligned")
        return address


def _compute_state(block: int, kind: int) -> tuple[StateBlock, StateType]:
    known = {(int(b), int(k)): (b, k) for b, k in STATE_UNIT_BYTES}
    key = known.get((block, kind))
    if key is None:
        names = [b.name for b in StateBlock if b == block] or [str(block)]
        raise BadState(f"LOAD_STATE6 of block {names[0]}, type {StateType(kind).name} is no compute state")
    if key == (StateBlock.CS_SHADER, StateType.UBO):
        raise BadState("LOAD_STATE6 of UBO descriptors is not modelled: pass uniform data as constants")
    return key


def _inline(inline: bytes, size: int, address: int) -> bytes:
    if address:
        raise BadState(f"LOAD_STATE6 DIRECT with address {address:#x}: it must be zero")
    if len(inline) != size:
        raise BadState(f"LOAD_STATE6 DIRECT of {size} bytes carries {len(inline)}")
    return inline


def _no_inline(inline: bytes) -> None:
    if inline:
        raise BadState(f"LOAD_STATE6 INDIRECT carries {len(inline)} bytes that nothing would use")


def _read_constants(memory: AddressSpace, address: int, size: int) -> bytes:
    """Return constants from memory; those beyond the end of the object that they begin in are poison.

    tinygrad loads 4096 bytes from argument blocks of 2048 and more, and packs the blocks of a graph without
    room at the end (``runtime/graph/hcq.py``). What a GPU reads there belongs to whatever Linux mapped next
    to the object (a6xx has no guard pages), and no program of tinygrad uses it.
    """
    inside = memory.find(address)
    if inside is None or address + size <= inside.end:
        return memory.read(address, size)
    known = memory.read(address, inside.end - address)
    return known + POISON * ((size - len(known)) // len(POISON))


T = TypeVar("T")

_code_cache: dict[int, bytes] = {}
_CODE_CACHE_ENTRIES = 4096


def _intern(address: int | None, code: bytes) -> bytes:
    """Return ``code``, as the same object as last time if it did not change.

    Its hash is then known already.
    """
    if address is None:
        return code
    if _code_cache.get(address) != code:
        if len(_code_cache) >= _CODE_CACHE_ENTRIES:
            _code_cache.clear()
        _code_cache[address] = code
    return _code_cache[address]


_texture = functools.lru_cache(4096)(unpack_texture)
_sampler = functools.lru_cache(256)(unpack_sampler)


def _unpack(unpack: Callable[[bytes], T], what: str, index: int, data: bytes | None, count: int) -> T:
    if data is None:
        raise BadState(f"SP_CS_CONFIG has {count} {what}s, but {what} {index} was not loaded")
    try:
        return unpack(data)
    except ValueError as error:
        raise BadState(f"{what} {index}: {error}") from error


# Registers whose values make up a Launch. TPL1_MODE_CNTL is among them because textures and images follow it.
_LAUNCH_WORDS: tuple[type[Register], ...] = (
    reg.SP_CS_CNTL_0,
    reg.SP_CS_CNTL_1,
    reg.SP_CS_PROGRAM_COUNTER_OFFSET,
    reg.SP_CS_PVT_MEM_PARAM,
    reg.SP_CS_PVT_MEM_SIZE,
    reg.SP_CS_TSIZE,
    reg.SP_CS_USIZE,
    reg.SP_CS_CONFIG,
    reg.SP_CS_INSTR_SIZE,
    reg.SP_MODE_CNTL,
    reg.TPL1_MODE_CNTL,
    reg.SP_CS_CONST_CONFIG,
    reg.SP_CS_NDRANGE_0,
    reg.SP_CS_NDRANGE_1,
    reg.SP_CS_NDRANGE_2,
    reg.SP_CS_NDRANGE_3,
    reg.SP_CS_NDRANGE_4,
    reg.SP_CS_NDRANGE_5,
    reg.SP_CS_NDRANGE_6,
    reg.SP_CS_CONST_CONFIG_0,
    reg.SP_CS_WGE_CNTL,
)
_LAUNCH_REGISTERS = tuple(word.OFFSET for word in _LAUNCH_WORDS)

_COPIES: tuple[tuple[type[Register], type[Register]], ...] = (
    (reg.SP_CS_WIE_CNTL_0, reg.SP_CS_CONST_CONFIG_0),
    (reg.SP_CS_WIE_CNTL_1, reg.SP_CS_WGE_CNTL),
    (reg.HLSQ_CS_CTRL_REG1, reg.SP_CS_CNTL_1),
)


class _Values:
    """The launch registers by name and field."""

    def __init__(self, values: tuple[int | None, ...]) -> None:
        self._values = dict(zip(_LAUNCH_WORDS, values, strict=True))

    def word(self, register: type[Register]) -> int:
        value = self._values[register]
        assert value is not None
        return value

    def get(self, register: type[Register], name: str) -> int:
        return register.get(self.word(register), name)


@functools.lru_cache(4096)
def _launch(chip: Chip, values: tuple[int | None, ...]) -> Launch:
    v = _Values(values)
    threads = _wave_size(v)
    local = _local_size(v)
    full, half = v.get(reg.SP_CS_CNTL_0, "FULLREGFOOTPRINT"), v.get(reg.SP_CS_CNTL_0, "HALFREGFOOTPRINT")
    merged = bool(v.get(reg.SP_CS_CNTL_0, "MERGEDREGS"))
    _check_workgroup(chip, local, full, half, merged, threads)
    _check_unmodelled(v)
    textures, samplers, uavs = (v.get(reg.SP_CS_CONFIG, name) for name in ("NTEX", "NSAMP", "NUAV"))
    _check_bound("SP_CS_TSIZE", v.word(reg.SP_CS_TSIZE), textures)
    _check_bound("SP_CS_USIZE", v.word(reg.SP_CS_USIZE), uavs)
    code_units = v.word(reg.SP_CS_INSTR_SIZE)
    if not code_units:
        raise BadState("SP_CS_INSTR_SIZE is 0")
    entry = v.word(reg.SP_CS_PROGRAM_COUNTER_OFFSET)
    if entry * INSTRUCTION_BYTES >= code_units * INSTRUCTION_UNIT:
        raise BadState(
            f"SP_CS_PROGRAM_COUNTER_OFFSET is {entry}, but SP_CS_INSTR_SIZE {code_units} makes "
            f"{code_units * INSTRUCTION_UNIT // INSTRUCTION_BYTES} instructions"
        )
    private, private_total = _private_memory(chip, v)
    ids = reg.SP_CS_CONST_CONFIG_0
    return Launch(
        local=local,
        global_size=_triple(v, (reg.SP_CS_NDRANGE_1, reg.SP_CS_NDRANGE_3, reg.SP_CS_NDRANGE_5)),
        global_offset=_triple(v, (reg.SP_CS_NDRANGE_2, reg.SP_CS_NDRANGE_4, reg.SP_CS_NDRANGE_6)),
        threads=threads,
        full_registers=full,
        half_registers=half,
        merged=merged,
        shared_bytes=_shared_bytes(chip, v),
        private_bytes=private,
        private_total=private_total,
        constant_vec4=_constant_vec4(chip, v),
        constants_enabled=bool(v.get(reg.SP_CS_CONST_CONFIG, "ENABLED")),
        code_units=code_units,
        entry=entry,
        textures=textures,
        samplers=samplers,
        uavs=uavs,
        demote_constants=bool(v.get(reg.SP_MODE_CNTL, "CONSTANT_DEMOTION_ENABLE")),
        isam_mode=_isam_mode(v),
        workgroup_id_register=_register_id(v.get(ids, "WGIDCONSTID"), SHARED_REGISTERS),
        workgroup_size_register=_register_id(v.get(ids, "WGSIZECONSTID"), SHARED_REGISTERS),
        workgroup_offset_register=_register_id(v.get(ids, "WGOFFSETCONSTID"), SHARED_REGISTERS),
        local_id_register=_register_id(v.get(ids, "LOCALIDREGID"), GENERAL_REGISTERS),
        linear_id_register=_register_id(v.get(reg.SP_CS_WGE_CNTL, "LINEARLOCALIDREGID"), GENERAL_REGISTERS),
    )


def _wave_size(v: _Values) -> int:
    sp, hlsq = v.get(reg.SP_CS_CNTL_0, "THREADSIZE"), v.get(reg.SP_CS_WGE_CNTL, "THREADSIZE")
    if sp != hlsq:
        raise BadState(f"THREADSIZE is {sp} in SP_CS_CNTL_0 and {hlsq} in SP_CS_WGE_CNTL")
    return 128 if sp == reg.ThreadSize.THREAD128 else 64


def _local_size(v: _Values) -> tuple[int, int, int]:
    dimensions = v.get(reg.SP_CS_NDRANGE_0, "KERNELDIM")
    x, y, z = (v.get(reg.SP_CS_NDRANGE_0, f"LOCALSIZE{axis}") + 1 for axis in "XYZ")
    if not 1 <= dimensions <= 3:
        raise BadState("KERNELDIM of SP_CS_NDRANGE_0 is 0: it must be 1, 2 or 3")
    if any(size != 1 for size in (x, y, z)[dimensions:]):
        raise BadState(f"SP_CS_NDRANGE_0 has KERNELDIM {dimensions}, but its local size is {x}x{y}x{z}")
    return x, y, z


def _check_workgroup(
    chip: Chip, local: tuple[int, int, int], full: int, half: int, merged: bool, threads: int
) -> None:
    """Mesa's occupancy rule: the waves of a work-group must be resident together."""
    count = local[0] * local[1] * local[2]
    vec4 = max(1, full + (0 if merged else (half + 1) // 2))
    waves = chip.registers_vec4 // (vec4 * threads // chip.wave_threads) * chip.wave_granularity
    limit = min(MAX_WORKGROUP, min(waves, chip.max_waves) * threads)
    if count > limit:
        raise BadState(
            f"work-group of {'x'.join(map(str, local))} = {count} work-items: "
            f"with {full} full and {half} half registers (vec4) {chip.name} holds {limit}"
        )


def _check_unmodelled(v: _Values) -> None:
    for name in ("BINDLESS_TEX", "BINDLESS_SAMP", "BINDLESS_UAV", "BINDLESS_UBO"):
        if v.get(reg.SP_CS_CONFIG, name):
            raise BadState(f"SP_CS_CONFIG.{name}: bindless descriptors are not modelled")
    if not v.get(reg.SP_CS_CONFIG, "ENABLED"):
        raise BadState("SP_CS_CONFIG.ENABLED is 0")
    for register, name in (
        (reg.SP_CS_CONST_CONFIG, "READ_IMM_SHARED_CONSTS"),
        (reg.SP_MODE_CNTL, "SHARED_CONSTS_ENABLE"),
        (reg.SP_CS_CNTL_0, "EARLYPREAMBLE"),
    ):
        if v.get(register, name):
            raise BadState(f"{register.__name__}.{name} is not modelled")


def _check_bound(name: str, bound: int, count: int) -> None:
    if count > bound:
        raise BadState(f"SP_CS_CONFIG has {count}, more than {name} = {bound} allows")


def _private_memory(chip: Chip, v: _Values) -> tuple[int, int]:
    per_fiber = v.get(reg.SP_CS_PVT_MEM_PARAM, "MEMSIZEPERITEM") * PRIVATE_UNIT
    total = v.get(reg.SP_CS_PVT_MEM_SIZE, "TOTALPVTMEMSIZE") * PRIVATE_SIZE_UNIT
    if per_fiber * chip.fibers_per_sp > total:
        raise BadState(
            f"private memory: {per_fiber} bytes for each of {chip.fibers_per_sp} fibers per shader processor "
            f"need {per_fiber * chip.fibers_per_sp} bytes, SP_CS_PVT_MEM_SIZE says {total}"
        )
    return per_fiber, total


def _shared_bytes(chip: Chip, v: _Values) -> int:
    size = v.get(reg.SP_CS_CNTL_1, "SHARED_SIZE")
    return (size + 1) * SHARED_UNIT if size else chip.shared_bytes


def _constant_vec4(chip: Chip, v: _Values) -> int:
    mode = reg.ConstantRamMode(v.get(reg.SP_CS_CNTL_1, "CONSTANTRAMMODE"))
    size = CONSTANT_FILES[mode]
    if size > chip.constants_vec4:
        raise BadState(
            f"CONSTANTRAMMODE {mode.name}: {chip.name} has {chip.constants_vec4} vec4 of constants"
        )
    length = v.get(reg.SP_CS_CONST_CONFIG, "CONSTLEN") * 4
    if length > size:
        raise BadState(
            f"CONSTLEN of SP_CS_CONST_CONFIG is {length} vec4, CONSTANTRAMMODE {mode.name} has {size}"
        )
    return length or size


def _isam_mode(v: _Values) -> str:
    sp, tp = v.get(reg.SP_MODE_CNTL, "ISAMMODE"), v.get(reg.TPL1_MODE_CNTL, "ISAMMODE")
    if sp != tp:
        raise BadState(f"ISAMMODE is {sp} in SP_MODE_CNTL and {tp} in TPL1_MODE_CNTL")
    names = {int(reg.IsamMode.ISAMMODE_CL): "cl", int(reg.IsamMode.ISAMMODE_GL): "gl"}
    if sp not in names:
        raise BadState(f"ISAMMODE {sp} is unknown: 1 is CL, 2 is GL")
    return names[sp]


def _triple(v: _Values, words: tuple[type[Register], type[Register], type[Register]]) -> tuple[int, int, int]:
    x, y, z = map(v.word, words)
    return x, y, z


def _register_id(value: int, allowed: range) -> int:
    return value if value in allowed else reg.UNUSED_REGISTER_ID
