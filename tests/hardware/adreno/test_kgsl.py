"""KGSL facts against the header as tinygrad generated it (tinygrad.runtime.autogen.kgsl).

That header is older than the driver modelled here; what it lacks is compared with values transcribed from
``include/uapi/linux/msm_kgsl.h`` of the 2025 tree of ``qualcomm-linux/kgsl``.
"""

from __future__ import annotations

import ctypes
import errno
import inspect
from ctypes import c_int32, c_int64, c_uint32, c_uint64
from enum import Enum, EnumType

import pytest
from tinygrad.runtime.autogen import kgsl as oracle

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.kgsl import (
    CONTEXT_FLAGS,
    IOCTLS,
    MEMFLAGS,
    CacheMode,
    MemoryType,
    PreemptStyle,
)
from ringfence.hardware.fields import Direction, Ioctl, Word

# Prefix of the header's names, by enumeration.
PREFIX = {
    "Property": "KGSL_PROP_",
    "DeviceFlags": "KGSL_FLAGS_",
    "ResetStatus": "KGSL_CTX_STAT_",
    "ConstraintType": "KGSL_CONSTRAINT_",
    "PowerLevel": "KGSL_CONSTRAINT_",
    "ContextType": "KGSL_CONTEXT_TYPE_",
    "PreemptStyle": "KGSL_CONTEXT_PREEMPT_STYLE_",
    "CacheMode": "KGSL_CACHEMODE_",
    "MemoryType": "KGSL_MEMTYPE_",
    "UserMemoryType": "KGSL_USER_MEM_TYPE_",
    "CommandBatchFlags": "KGSL_CMDBATCH_",
    "CommandListFlags": "KGSL_CMDLIST_",
    "ObjectListFlags": "KGSL_OBJLIST_",
    "SyncPointType": "KGSL_CMD_SYNCPOINT_TYPE_",
    "TimestampType": "KGSL_TIMESTAMP_",
    "TimestampEvent": "KGSL_TIMESTAMP_EVENT_",
    "GpuEvent": "KGSL_GPU_EVENT_",
    "FreeFlags": "KGSL_GPUOBJ_",
    "SetInfoFlags": "KGSL_GPUOBJ_SET_INFO_",
    "CacheOperation": "KGSL_GPUMEM_CACHE_",
    "TimelineWait": "KGSL_TIMELINE_WAIT_",
    "FaultType": "KGSL_FAULT_TYPE_",
}

# Names that cannot be spelled as in the header.
RENAMED = {"KGSL_MEMTYPE_TWO_D": "KGSL_MEMTYPE_2D"}

# Constants of the 2025 header that the older one lacks.
HEADER_2025 = {
    "KGSL_CONTEXT_NO_SNAPSHOT": 0x00040000,
    "KGSL_CONTEXT_SPARSE": 0x00080000,
    "KGSL_CONTEXT_INVALIDATE_ON_FAULT": 0x10000000,
    "KGSL_CONTEXT_LPAC": 0x20000000,
    "KGSL_CONTEXT_FAULT_INFO": 0x40000000,
    "KGSL_CONTEXT_TYPE_VK": 5,
    "KGSL_CMDBATCH_SPARSE": 0x1000,
    "KGSL_CMDBATCH_START_RECURRING": 0x00100000,
    "KGSL_CMDBATCH_STOP_RECURRING": 0x00200000,
    "KGSL_CMD_SYNCPOINT_TYPE_TIMELINE": 2,
    "KGSL_MEMFLAGS_SPARSE_PHYS": 1 << 29,
    "KGSL_MEMFLAGS_SPARSE_VIRT": 1 << 30,
    "KGSL_MEMFLAGS_IOCOHERENT": 1 << 31,
    "KGSL_MEMFLAGS_GUARD_PAGE": 1 << 33,
    "KGSL_MEMFLAGS_VBO": 1 << 34,
    "KGSL_MEMFLAGS_VBO_NO_MAP_ZERO": 1 << 35,
    "KGSL_CONSTRAINT_L3_NONE": 2,
    "KGSL_CONSTRAINT_L3_PWRLEVEL": 3,
    "KGSL_PROP_HIGHEST_BANK_BIT": 0x17,
    "KGSL_PROP_DEVICE_QDSS_STM": 0x19,
    "KGSL_PROP_MIN_ACCESS_LENGTH": 0x1A,
    "KGSL_PROP_UBWC_MODE": 0x1B,
    "KGSL_PROP_DEVICE_QTIMER": 0x20,
    "KGSL_PROP_L3_PWR_CONSTRAINT": 0x22,
    "KGSL_PROP_SECURE_BUFFER_ALIGNMENT": 0x23,
    "KGSL_PROP_SECURE_CTXT_SUPPORT": 0x24,
    "KGSL_PROP_SPEED_BIN": 0x25,
    "KGSL_PROP_GAMING_BIN": 0x26,
    "KGSL_PROP_QUERY_CAPABILITIES": 0x27,
    "KGSL_PROP_CONTEXT_PROPERTY": 0x28,
    "KGSL_PROP_GPU_MODEL": 0x29,
    "KGSL_PROP_VK_DEVICE_ID": 0x2A,
    "KGSL_PROP_IS_LPAC_ENABLED": 0x2B,
    "KGSL_PROP_GPU_VA64_SIZE": 0x2C,
    "KGSL_PROP_IS_RAYTRACING_ENABLED": 0x2D,
    "KGSL_PROP_IS_FASTBLEND_ENABLED": 0x2E,
    "KGSL_PROP_UCHE_TRAP_BASE": 0x2F,
    "KGSL_PROP_IS_AQE_ENABLED": 0x30,
    "KGSL_PROP_GPU_SECURE_VA_SIZE": 0x31,
    "KGSL_PROP_GPU_SECURE_VA_INUSE": 0x32,
    "KGSL_TIMELINE_WAIT_ALL": 1,
    "KGSL_TIMELINE_WAIT_ANY": 2,
    "KGSL_FAULT_TYPE_NO_FAULT": 0,
    "KGSL_FAULT_TYPE_PAGEFAULT": 1,
}

# Structures of the 2025 header that the older one lacks, member by member.
TIMELINE_VAL = [("seqno", c_uint64), ("timeline", c_uint32), ("padding", c_uint32)]
STRUCTS_2025 = {
    "QTIMER_PROP": [("gpuaddr", c_uint64), ("size", c_uint64)],
    "CAPABILITIES": [("data", c_uint64), ("size", c_uint64), ("querytype", c_uint32)],
    "CAPABILITIES_PROPERTIES": [("list", c_uint64), ("count", c_uint32)],
    "CONTEXT_PROPERTY": [("data", c_uint64), ("size", c_uint32), ("type", c_uint32), ("contextid", c_uint32)],
    "CONTEXT_PROPERTY_FAULT": [("faults", c_int32), ("timestamp", c_uint32)],
    "GPU_MODEL": [("gpu_model", ctypes.c_char * 32)],
    "CMD_SYNCPOINT_TIMELINE": [("timelines", c_uint64), ("count", c_uint32), ("timelines_size", c_uint32)],
    "TIMELINE_VAL": TIMELINE_VAL,
    "FAULT": [
        ("fault", c_uint64),
        ("type", c_uint32),
        ("count", c_uint32),
        ("size", c_uint32),
        ("padding", c_uint32),
    ],
}

# Ioctls of the 2025 header that the older one lacks: direction, number, members.
IOCTLS_2025 = {
    "TIMELINE_CREATE": (
        Direction.READ_WRITE,
        0x58,
        [("seqno", c_uint64), ("id", c_uint32), ("padding", c_uint32)],
    ),
    "TIMELINE_WAIT": (
        Direction.WRITE,
        0x59,
        [
            ("tv_sec", c_int64),
            ("tv_nsec", c_int64),
            ("timelines", c_uint64),
            ("count", c_uint32),
            ("timelines_size", c_uint32),
            ("flags", c_uint32),
            ("padding", c_uint32),
        ],
    ),
    "TIMELINE_QUERY": (Direction.READ_WRITE, 0x5A, TIMELINE_VAL),
    "TIMELINE_SIGNAL": (
        Direction.WRITE,
        0x5B,
        [("timelines", c_uint64), ("count", c_uint32), ("timelines_size", c_uint32)],
    ),
    "TIMELINE_FENCE_GET": (
        Direction.READ_WRITE,
        0x5C,
        [("seqno", c_uint64), ("timeline", c_uint32), ("handle", c_int32)],
    ),
    "TIMELINE_DESTROY": (Direction.WRITE, 0x5D, [("id", c_uint32)]),  # the header's argument is a bare __u32
    "GET_FAULT_REPORT": (
        Direction.READ_WRITE,
        0x5E,
        [
            ("faultlist", c_uint64),
            ("faultnents", c_uint32),
            ("faultsize", c_uint32),
            ("context_id", c_uint32),
            ("padding", c_uint32),
        ],
    ),
}

# Numbers that are not in the header, and where they are from.
LISTED_CONSTANTS = {
    "PAGE_SHIFT": 12,  # PAGE_SHIFT of the kernel
    "MAX_COMMANDS": 2000,  # KGSL_MAX_NUMIBS, kgsl.h
    "MAX_SYNCPOINTS": 32,  # KGSL_MAX_SYNCPOINTS, kgsl.h
    "MAX_SYNC_OBJECTS": 128,  # kgsl_ioctl_gpuobj_sync, kgsl.c
    "MAX_IB_DWORDS": 0xFFFFF,  # checked by _verify_ib, adreno.c
    "MAX_OBJECT_BYTES": 0xFFFFFFFF,  # gpumem_alloc_entry, kgsl.c
    "ENOTSUPP": 524,  # include/linux/errno.h
}

# How the table of ioctl numbers reads when the header is compiled for a 64-bit machine.
NUMBERS = {
    "DEVICE_GETPROPERTY": 0xC0180902,
    "DEVICE_WAITTIMESTAMP_CTXTID": 0x400C0907,
    "DRAWCTXT_CREATE": 0xC0080913,
    "MAP_USER_MEM": 0xC0300915,
    "SETPROPERTY": 0x40180932,
    "GPUOBJ_ALLOC": 0xC0300945,
    "GPUOBJ_FREE": 0x40200946,
    "GPUOBJ_SYNC": 0x40100949,
    "GPU_COMMAND": 0xC040094A,
    "TIMELINE_WAIT": 0x40280959,
}


def constant(name: str) -> int | None:
    """The value of a constant of the header; ``None`` if neither version has it."""
    name = RENAMED.get(name, name)
    return getattr(oracle, name, HEADER_2025.get(name))


def field_bits(names: list[str]) -> tuple[int, int] | None:
    """Lowest and highest bit of a flag, or of a field that has ``_MASK`` and ``_SHIFT``."""
    for name in names:
        if (mask := constant(f"{name}_MASK")) is not None:
            low = constant(f"{name}_SHIFT")
            return low, mask.bit_length() - 1
        if (bit := constant(name)) is not None:
            return bit.bit_length() - 1, bit.bit_length() - 1
    return None


def layout(structure: type[ctypes.Structure]) -> list[tuple[str, int, int]]:
    return [
        (f[0], getattr(structure, f[0]).offset, getattr(structure, f[0]).size) for f in structure._fields_
    ]


def transcribed(members: list[tuple[str, type]]) -> tuple[int, list[tuple[str, int, int]]]:
    structure = type("Transcribed", (ctypes.Structure,), {"_fields_": members})
    return ctypes.sizeof(structure), layout(structure)


def generated(structure: type) -> tuple[int, list[tuple[str, int, int]]]:
    fields = [
        (name.replace("__pad", "padding"), at, ctypes.sizeof(t)) for name, t, at in structure._real_fields_
    ]
    return structure.SIZE, fields


def structure_oracle(name: str) -> tuple[int, list[tuple[str, int, int]]] | None:
    if name in STRUCTS_2025:
        return transcribed(STRUCTS_2025[name])
    found = getattr(oracle, f"struct_kgsl_{name.lower()}", None)
    return generated(found) if found else None


def ioctl_oracle(name: str) -> tuple[int, int, list[tuple[str, int, int]]] | None:
    if name in IOCTLS_2025:
        direction, nr, members = IOCTLS_2025[name]
        size, fields = transcribed(members)
    else:
        found = getattr(oracle, f"IOCTL_KGSL_{name}", None)
        if found is None:
            return None
        direction, _, nr, structure = found.args
        size, fields = generated(structure)
    return direction << 30 | size << 16 | oracle.KGSL_IOC_TYPE << 8 | nr, size, fields


def members_of(kind: type) -> list[type]:
    return [
        v
        for v in vars(kgsl).values()
        if inspect.isclass(v) and issubclass(v, kind) and v.__module__ == kgsl.__name__
    ]


def test_ioctl_numbers_sizes_and_offsets(tally):
    assert set(members_of(Ioctl)) == set(IOCTLS.values())
    for argument in IOCTLS.values():
        declared = argument.REQUEST, ctypes.sizeof(argument), layout(argument)
        tally.compare(argument.__name__, declared, ioctl_oracle(argument.__name__))
    tally.finish()


def test_structure_sizes_and_offsets(tally):
    for structure in members_of(ctypes.Structure):
        if not issubclass(structure, Ioctl):
            declared = ctypes.sizeof(structure), layout(structure)
            tally.compare(structure.__name__, declared, structure_oracle(structure.__name__))
    tally.finish()


def test_enumerated_values(tally):
    for values in members_of(Enum):
        assert isinstance(values, EnumType)
        for name, member in values.__members__.items():
            tally.compare(f"{values.__name__}.{name}", member.value, constant(PREFIX[values.__name__] + name))
    tally.finish()


def test_flag_fields(tally):
    prefixes = {CONTEXT_FLAGS: ["KGSL_CONTEXT_"], MEMFLAGS: ["KGSL_MEMFLAGS_", "KGSL_"]}
    assert set(members_of(Word)) == set(prefixes)
    for word, names in prefixes.items():
        for name, field in word.FIELDS.items():
            bits = field_bits([prefix + name for prefix in names])
            tally.compare(f"{word.__name__}.{name}", (field.low, field.high), bits)
    tally.finish()


def test_constants(tally):
    for name, value in vars(kgsl).items():
        if name.isupper() and type(value) is int:
            header = {"MAGIC": "IOC_TYPE"}.get(name, name)
            tally.compare(name, value, LISTED_CONSTANTS.get(name, constant(f"KGSL_{header}")))
    tally.finish()


def test_transcribed_values_are_only_used_where_the_older_header_has_none():
    assert not [name for name in HEADER_2025 if hasattr(oracle, name)]
    assert not [name for name in STRUCTS_2025 if hasattr(oracle, f"struct_kgsl_{name.lower()}")]
    assert not [name for name in IOCTLS_2025 if hasattr(oracle, f"IOCTL_KGSL_{name}")]


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_ioctl_number(name, number):
    assert number == getattr(kgsl, name).REQUEST


def test_the_context_flags_of_tinygrad():
    flags = CONTEXT_FLAGS.pack(
        PREAMBLE=1,
        PWR_CONSTRAINT=1,
        NO_FAULT_TOLERANCE=1,
        NO_GMEM_ALLOC=1,
        PRIORITY=8,
        PREEMPT_STYLE=PreemptStyle.FINEGRAIN,
    )
    assert flags == 0x04008A12


def test_memory_flags_pack_in_64_bits():
    flags = MEMFLAGS.pack(MEMALIGN=12, USE_CPU_MAP=1, CACHEMODE=CacheMode.WRITEBACK, VBO=1)
    assert flags == 12 << 16 | 1 << 28 | 3 << 26 | 1 << 34
    assert MEMFLAGS.describe(flags | MemoryType.CL << 8).startswith("MEMTYPE=CL MEMALIGN=0xc")


def test_every_ioctl_explains_its_errors():
    for argument in IOCTLS.values():
        assert argument.CAUSES, argument.__name__
        for number, cause in argument.CAUSES.items():
            assert number in errno.errorcode or number == kgsl.ENOTSUPP, (argument.__name__, number)
            assert cause and not cause.endswith("."), (argument.__name__, cause)


def test_an_ioctl_describes_its_arguments_without_padding():
    argument = kgsl.GPUMEM_FREE_ID(id=7)
    assert argument.describe() == "GPUMEM_FREE_ID(id=0x7)"
    assert "mmapsize=0x1000" in kgsl.GPUMEM_ALLOC_ID(mmapsize=0x1000).describe()


def test_arguments_fit_the_kernels_buffer():
    # kgsl_ioctl_helper in kgsl_ioctl.c copies the argument into 128 bytes on its stack.
    assert max(ctypes.sizeof(argument) for argument in IOCTLS.values()) <= 128
