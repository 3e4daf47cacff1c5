"""KFD facts against the header as tinygrad generated it (tinygrad.runtime.autogen.kfd, interface 1.17).

What is not in that header is compared with values transcribed from ``kfd_priv.h``, ``kfd_events.h``,
``kfd_queue.c`` and ``kfd_flat_memory.c`` of Linux.
"""

from __future__ import annotations

import ctypes
import errno
import inspect
from enum import Enum, EnumType

import pytest
from tinygrad.runtime.autogen import kfd as oracle

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import CHIPS
from ringfence.hardware.amd.kfd import (
    CREATE_QUEUE,
    DOMAINS,
    IOCTLS,
    MMAP_OFFSET,
    QUEUE_PERCENTAGE,
    AllocFlags,
    MmapType,
    QueueType,
    queue_refusal,
    queue_sizes,
    split_doorbell_offset,
)
from ringfence.hardware.fields import Ioctl, Word

# Prefix of the header's names, by enumeration.
PREFIX = {
    "QueueType": "KFD_IOC_QUEUE_TYPE_",
    "CachePolicy": "KFD_IOC_CACHE_POLICY_",
    "AllocFlags": "KFD_IOC_ALLOC_MEM_FLAGS_",
    "EventType": "KFD_IOC_EVENT_",
    "WaitResult": "KFD_IOC_WAIT_RESULT_",
    "ResetType": "KFD_HW_EXCEPTION_",
    "ResetCause": "KFD_HW_EXCEPTION_",
    "MemoryError": "KFD_MEM_ERR_",
    "SvmOp": "KFD_IOCTL_SVM_OP_",
    "SvmLocation": "KFD_IOCTL_SVM_LOCATION_",
    "SvmAttr": "KFD_IOCTL_SVM_ATTR_",
    "SvmFlags": "KFD_IOCTL_SVM_FLAG_",
    "RuntimeEnableMode": "KFD_RUNTIME_ENABLE_MODE_",
    "ExceptionCode": "EC_",
    "CriuOp": "KFD_CRIU_OP_",
    "DbgTrapOp": "KFD_IOC_DBG_TRAP_",
    "MmioRemap": "KFD_MMIO_REMAP_",
    "MmapType": "KFD_MMAP_TYPE_",
}
SUFFIX = {"RuntimeEnableMode": "_MASK"}

# KFD_MMAP_TYPE_* >> KFD_MMAP_TYPE_SHIFT, kfd_priv.h.
PRIVATE_VALUES = {
    "KFD_MMAP_TYPE_MMIO": 0,
    "KFD_MMAP_TYPE_RESERVED_MEM": 1,
    "KFD_MMAP_TYPE_EVENTS": 2,
    "KFD_MMAP_TYPE_DOORBELL": 3,
}

# Fields that the header has no constants for.
LISTED_FIELDS = {
    ("MMAP_OFFSET", "OFFSET"): (0, 45),  # kfd_priv.h, "BITS[45:0] - MMAP offset value"
    ("MMAP_OFFSET", "GPU_ID"): (46, 61),  # KFD_MMAP_GPU_ID_SHIFT and KFD_GPU_ID_HASH_WIDTH, kfd_priv.h
    ("MMAP_OFFSET", "TYPE"): (62, 63),  # KFD_MMAP_TYPE_SHIFT, kfd_priv.h
    ("HANDLE", "IDR_HANDLE"): (0, 31),  # GET_IDR_HANDLE, kfd_priv.h
    ("HANDLE", "GPU_ID"): (32, 63),  # GET_GPU_ID, kfd_priv.h
    ("QUEUE_PERCENTAGE", "PERCENT"): (0, 7),  # set_queue_properties_from_user, kfd_chardev.c
    ("QUEUE_PERCENTAGE", "PM4_TARGET_XCC"): (8, 15),  # the same
}

# Numbers that are not in the header, and where they are from.
LISTED_CONSTANTS = {
    "MAGIC": ord("K"),  # AMDKFD_IOCTL_BASE, a character in the header
    "PAGE_BYTES": 4096,  # AMDGPU_GPU_PAGE_SIZE, amdgpu_vm.h
    "NORMAL_QUEUE_PRIORITY": 7,  # HSA_QUEUE_PRIORITY_NORMAL as libhsakmt translates it
    "MIN_QUEUE_RING_SIZE": 1024,  # KFD_MIN_QUEUE_RING_SIZE, newer headers
    "MAX_QUEUES_PER_PROCESS": 1024,  # KFD_MAX_NUM_OF_QUEUES_PER_PROCESS, kfd_priv.h
    "ENOTSUPP": 524,  # include/linux/errno.h
    "DOORBELL_BYTES": 8,  # doorbell_size of device_info on SOC15 parts, kfd_device.c
    "DOORBELL_SLICE_BYTES": 0x2000,  # kfd_doorbell_process_slice, kfd_doorbell.c
    "SIGNAL_SLOT_BYTES": 8,  # sizeof of an entry of kfd_signal_page, kfd_events.c
    "EVENT_PAGE_BYTES": 0x8000,  # KFD_SIGNAL_EVENT_LIMIT * 8, kfd_events.c
    "UNSIGNALED_EVENT_SLOT": 0xFFFFFFFFFFFFFFFF,  # kfd_events.h
    "FIRST_NONSIGNAL_EVENT_ID": (0x7FFFFFFF >> 1) + 1,  # kfd_events.h
    "LAST_NONSIGNAL_EVENT_ID": 0x7FFFFFFF,  # kfd_events.h
    "EVENT_TIMEOUT_IMMEDIATE": 0,  # KFD_EVENT_TIMEOUT_IMMEDIATE, kfd_priv.h
    "EVENT_TIMEOUT_INFINITE": 0xFFFFFFFF,  # KFD_EVENT_TIMEOUT_INFINITE, kfd_priv.h
    "LDS_APERTURE_BASE": 1 << 48,  # MAKE_LDS_APP_BASE_V9, kfd_flat_memory.c
    "SCRATCH_APERTURE_BASE": 2 << 48,  # MAKE_SCRATCH_APP_BASE_V9, kfd_flat_memory.c
    "APERTURE_LIMIT_MASK": 0xFFFFFFFF,  # MAKE_LDS_APP_LIMIT, kfd_flat_memory.c
    "GPUVM_APERTURE_BASE": 0x1000000,  # SVM_USER_BASE, kfd_flat_memory.c
    "GPUVM_APERTURE_LIMIT": (1 << 47) - 1,  # gpuvm_limit of the shared aperture, kfd_flat_memory.c
    "CLOCK_FREQUENCY_HZ": 10**9,  # kfd_ioctl_get_clock_counters, kfd_chardev.c
    "SGPR_SIZE_PER_CU": 0x4000,  # kfd_queue.c
    "LDS_SIZE_PER_CU": 0x10000,  # kfd_queue.c
    "HWREG_SIZE_PER_CU": 0x1000,  # kfd_queue.c
    "DEBUGGER_BYTES_ALIGN": 64,  # kfd_queue.c
    "DEBUGGER_BYTES_PER_WAVE": 32,  # kfd_queue.c
    "EOP_BUFFER_BYTES": 4096,  # eop_buffer_size, kfd_queue.c
    "USER_ADDRESS_LIMIT": (1 << 47) - 4096,  # TASK_SIZE_MAX, arch/x86/include/asm/page_64.h
}

# Names of the header that are spelled otherwise.
HEADER_CONSTANT = {
    "VERSION_MAJOR": "KFD_IOCTL_MAJOR_VERSION",
    "VERSION_MINOR": "KFD_IOCTL_MINOR_VERSION",
    "NUM_OF_SUPPORTED_GPUS": "NUM_OF_SUPPORTED_GPUS",
    "COMMAND_END": "AMDKFD_COMMAND_END",
}

# Structures whose name in the header is not struct_kfd_<lower case>.
HEADER_STRUCTURE = {
    "SVM_ATTRIBUTE": "struct_kfd_ioctl_svm_attribute",
    **{
        name: f"struct_kfd_ioctl_{name.lower()}_args"
        for name in vars(kfd)
        if name.startswith("DBG_TRAP_") and name != "DBG_TRAP_ARGUMENTS"
    },
}
# Unions have no name in the header: their members are compared as those of the structure around them.
UNIONS = ("payload", "arguments")
# The flexible array at the end of kfd_ioctl_svm_args has no bytes.
EMPTY = ("attrs",)

Layout = list[tuple[str, int, int]]


def declared_layout(structure: type, base: int = 0) -> Layout:
    rows = []
    for name, kind, *_ in structure._fields_:
        at = base + getattr(structure, name).offset
        if name in UNIONS:
            rows += declared_layout(kind, at)
        else:
            rows.append((name, at, ctypes.sizeof(kind)))
    return rows


def header_layout(structure: type, declared: Layout, base: int = 0) -> Layout:
    known = {name for name, _, _ in declared}
    rows = []
    for name, kind, at in structure._real_fields_:
        name = "padding" if name == "pad" else name
        if name not in known and hasattr(kind, "_real_fields_"):
            rows += header_layout(kind, declared, base + at)
        elif name not in EMPTY:
            rows.append((name, base + at, ctypes.sizeof(kind)))
    return rows


def members_of(kind: type) -> list[type]:
    return [
        v
        for v in vars(kfd).values()
        if inspect.isclass(v) and issubclass(v, kind) and v.__module__ == kfd.__name__
    ]


def test_ioctl_numbers_sizes_and_offsets(tally):
    assert set(members_of(Ioctl)) == set(IOCTLS.values())
    for argument in IOCTLS.values():
        layout = declared_layout(argument)
        declared = argument.REQUEST, ctypes.sizeof(argument), layout
        found = getattr(oracle, f"AMDKFD_IOC_{argument.__name__}", None)
        expected = None
        if found is not None:
            direction, magic, nr, structure = found.args
            number = direction << 30 | structure.SIZE << 16 | magic << 8 | nr
            expected = number, structure.SIZE, header_layout(structure, layout)
        tally.compare(argument.__name__, declared, expected)
    tally.finish()


def test_every_ioctl_of_a_mainline_kernel_is_declared():
    # From 0x80 on the numbers are those of ROCm's out-of-tree driver; a mainline kernel answers EINVAL.
    header = {
        name.removeprefix("AMDKFD_IOC_")
        for name, value in vars(oracle).items()
        if name.startswith("AMDKFD_IOC_") and value.args[2] < oracle.AMDKFD_COMMAND_END
    }
    assert header == {argument.__name__ for argument in IOCTLS.values()}


def test_structure_sizes_and_offsets(tally):
    for structure in members_of(ctypes.Structure):
        if issubclass(structure, Ioctl):
            continue
        name = HEADER_STRUCTURE.get(structure.__name__, f"struct_kfd_{structure.__name__.lower()}")
        layout = declared_layout(structure)
        found = getattr(oracle, name, None)
        expected = (found.SIZE, header_layout(found, layout)) if found else None
        tally.compare(structure.__name__, (ctypes.sizeof(structure), layout), expected)
    tally.finish()


def test_enumerated_values(tally):
    for values in members_of(Enum):
        assert isinstance(values, EnumType)
        for name, member in values.__members__.items():
            header = PREFIX[values.__name__] + name + SUFFIX.get(values.__name__, "")
            expected = getattr(oracle, header, PRIVATE_VALUES.get(header))
            tally.compare(f"{values.__name__}.{name}", member.value, expected)
    tally.finish()


def test_no_value_that_the_header_knows_is_missing():
    for values in members_of(Enum):
        if values.__name__ in ("MmapType", "DbgTrapOp"):  # not in the header; a prefix of other names
            continue
        prefix, suffix = PREFIX[values.__name__], SUFFIX.get(values.__name__, "")
        header = {
            name.removeprefix(prefix).removesuffix(suffix)
            for name, value in vars(oracle).items()
            if name.startswith(prefix) and name.endswith(suffix) and isinstance(value, int)
        }
        # The two kinds of hardware exception values share their prefix.
        both = set(kfd.ResetType.__members__) | set(kfd.ResetCause.__members__)
        declared = both if prefix == "KFD_HW_EXCEPTION_" else set(values.__members__)
        assert header - {"MAX"} == declared, values.__name__


def test_fields(tally):
    for word in members_of(Word):
        for name, field in word.FIELDS.items():
            expected = LISTED_FIELDS.get((word.__name__, name))
            tally.compare(f"{word.__name__}.{name}", (field.low, field.high), expected)
    tally.finish()


def test_constants(tally):
    for name, value in vars(kfd).items():
        if name.isupper() and type(value) is int and not name.startswith("_"):
            header = HEADER_CONSTANT.get(name, f"KFD_{name}")
            tally.compare(name, value, LISTED_CONSTANTS.get(name, getattr(oracle, header, None)))
    tally.finish()


def test_the_domains_are_the_flags_below_contiguous():
    assert AllocFlags.CONTIGUOUS - 1 & DOMAINS == DOMAINS == 0x1F


def test_every_ioctl_explains_its_errors():
    for argument in IOCTLS.values():
        assert argument.CAUSES, argument.__name__
        for number, cause in argument.CAUSES.items():
            assert number in errno.errorcode or number == kfd.ENOTSUPP, (argument.__name__, number)
            assert cause and not cause.endswith("."), (argument.__name__, cause)


def test_an_ioctl_describes_its_arguments_without_padding():
    assert kfd.ACQUIRE_VM(drm_fd=5, gpu_id=7).describe() == "ACQUIRE_VM(drm_fd=0x5, gpu_id=0x7)"
    assert kfd.DESTROY_QUEUE(queue_id=1).describe() == "DESTROY_QUEUE(queue_id=0x1)"
    assert kfd.DBG_TRAP(pid=3).describe() == "DBG_TRAP(pid=0x3, op=0x0, arguments=<24 bytes>)"


@pytest.mark.parametrize("argument", IOCTLS.values(), ids=lambda argument: argument.__name__)
def test_every_ioctl_can_be_described(argument):
    assert argument().describe().startswith(f"{argument.__name__}(")


def test_payloads_of_an_event_share_their_bytes():
    event = kfd.EVENT_DATA()
    event.memory_exception_data.va = 0x1000
    event.memory_exception_data.gpu_id = 7
    event.memory_exception_data.failure.NotPresent = 1
    assert event.hw_exception_data.reset_type == 1
    assert event.signal_event_data.last_event_age == 1
    assert bytes(event)[24:28] == (7).to_bytes(4, "little")


def test_a_doorbell_offset_splits_into_slice_and_doorbell():
    offset = MMAP_OFFSET.pack(TYPE=MmapType.DOORBELL, GPU_ID=0x8BF2, OFFSET=0x18)
    slice_offset, byte = split_doorbell_offset(offset)
    assert byte == 0x18
    assert MMAP_OFFSET.unpack(slice_offset) == {"OFFSET": 0, "GPU_ID": 0x8BF2, "TYPE": MmapType.DOORBELL}


# ----- queue sizes --------------------------------------------------------------------------------

# waves, wg_data_size, ctl_stack_size, cwsr_size, debug_memory_size, cwsr_allocation: worked out by hand from
# kfd_queue_ctx_save_restore_size. cwsr_size and ctl_stack_size of gfx1201 are also those that a Radeon AI PRO
# R9700 shows in its topology, which has as many compute units.
SIZES = {
    "gfx1100": (3072, 0x2BE0000, 0xA000, 46047232, 98304, 46145536),
    "gfx1101": (1920, 0x1B6C000, 0x6000, 28778496, 61440, 28839936),
    "gfx1102": (1024, 0xAA0000, 0x4000, 11157504, 32768, 11190272),
    "gfx1200": (1024, 0xEA0000, 0x4000, 15351808, 32768, 15384576),
    "gfx1201": (2048, 0x1D40000, 0x7000, 30699520, 65536, 30765056),
    "gfx942": (1520, 0x161E000, 0x3000, 23203840, 48640, 186019840),
    "gfx950": (1280, 0x15A0000, 0x3000, 22687744, 40960, 181829632),
}


def test_every_chip_has_hand_computed_queue_sizes():
    assert set(SIZES) == set(CHIPS)


@pytest.mark.parametrize(("name", "expected"), SIZES.items())
def test_queue_sizes_are_the_kernels(name, expected):
    sizes = queue_sizes(CHIPS[name].node())
    found = (
        sizes.waves,
        sizes.wg_data_size,
        sizes.ctl_stack_size,
        sizes.cwsr_size,
        sizes.debug_memory_size,
        sizes.cwsr_allocation,
    )
    assert found == expected
    assert sizes.eop_buffer_size == 4096


# ----- what CREATE_QUEUE checks -------------------------------------------------------------------

RING, POINTERS, EOP, CWSR = 0x7F0000000000, 0x7F0001000000, 0x7F0002000000, 0x7F0003000000
NODE_SIZES = queue_sizes(CHIPS["gfx1100"].node())
MAPPINGS = {
    RING: 0x10000,
    POINTERS: 0x1000,
    EOP: 0x1000,
    CWSR: NODE_SIZES.cwsr_allocation,
}


def mapping_at(address: int) -> tuple[int, int] | None:
    for start, size in MAPPINGS.items():
        if start <= address < start + size:
            return start, size
    return None


def good_queue(**changes: int) -> CREATE_QUEUE:
    values = {
        "ring_base_address": RING,
        "ring_size": 0x10000,
        "write_pointer_address": POINTERS + 56,
        "read_pointer_address": POINTERS + 128,
        "queue_type": QueueType.COMPUTE,
        "queue_percentage": 100,
        "queue_priority": 7,
        "eop_buffer_address": EOP,
        "eop_buffer_size": 4096,
        "ctx_save_restore_address": CWSR,
        "ctx_save_restore_size": NODE_SIZES.cwsr_size,
        "ctl_stack_size": NODE_SIZES.ctl_stack_size,
    }
    return CREATE_QUEUE(**(values | changes))


def test_a_queue_with_the_sizes_of_the_node_is_not_refused():
    assert queue_refusal(good_queue(), NODE_SIZES, mapping_at) is None


@pytest.mark.parametrize(
    ("changes", "field", "number"),
    [
        ({"queue_percentage": 101}, "queue_percentage", errno.EINVAL),
        ({"queue_priority": 16}, "queue_priority", errno.EINVAL),
        ({"ring_base_address": 1 << 47}, "ring_base_address", errno.EFAULT),
        ({"ring_size": 0x18000}, "ring_size", errno.EINVAL),
        ({"read_pointer_address": 1 << 60}, "read_pointer_address", errno.EFAULT),
        ({"write_pointer_address": 1 << 60}, "write_pointer_address", errno.EFAULT),
        ({"eop_buffer_address": 1 << 60}, "eop_buffer_address", errno.EFAULT),
        ({"ctx_save_restore_address": 1 << 60}, "ctx_save_restore_address", errno.EFAULT),
        ({"queue_type": 5}, "queue_type", kfd.ENOTSUPP),
        ({"write_pointer_address": 0x1000}, "write_pointer_address", errno.EINVAL),
        ({"read_pointer_address": 0x1000}, "read_pointer_address", errno.EINVAL),
        ({"ring_size": 0x20000}, "ring_base_address", errno.EINVAL),
        ({"ring_base_address": RING + 0x1000}, "ring_base_address", errno.EINVAL),
        ({"eop_buffer_size": 0x2000}, "eop_buffer_size", errno.EINVAL),
        ({"eop_buffer_address": RING}, "eop_buffer_address", errno.EINVAL),
        ({"ctl_stack_size": 0x9000}, "ctl_stack_size", errno.EINVAL),
        ({"ctx_save_restore_size": NODE_SIZES.cwsr_size - 4096}, "ctx_save_restore_size", errno.EINVAL),
        ({"ctx_save_restore_address": RING}, "ctx_save_restore_address", errno.EINVAL),
    ],
)
def test_a_refusal_names_the_argument_and_the_errno(changes, field, number):
    refusal = queue_refusal(good_queue(**changes), NODE_SIZES, mapping_at)
    assert refusal is not None
    assert (refusal.field, refusal.errno) == (field, number)
    assert str(refusal).startswith(f"{field} is {refusal.found:#x}, expected ")


def test_a_refused_size_says_what_the_kernel_expects():
    refusal = queue_refusal(good_queue(ctl_stack_size=0x1000), NODE_SIZES, mapping_at)
    assert str(refusal) == "ctl_stack_size is 0x1000, expected 0xa000"


def test_the_target_xcc_does_not_count_as_percentage():
    percentage = QUEUE_PERCENTAGE.pack(PERCENT=100, PM4_TARGET_XCC=3)
    assert queue_refusal(good_queue(queue_percentage=percentage), NODE_SIZES, mapping_at) is None


def test_a_copy_queue_needs_ring_and_pointers_only():
    queue = good_queue(queue_type=QueueType.SDMA, ctl_stack_size=0, ctx_save_restore_size=0)
    assert queue_refusal(queue, NODE_SIZES, mapping_at) is None


def test_a_ring_below_the_minimum_is_taken_for_the_minimum():
    # 1024 bytes are less than a page, so the kernel compares only where the mapping begins.
    assert queue_refusal(good_queue(ring_size=0), NODE_SIZES, mapping_at) is None
