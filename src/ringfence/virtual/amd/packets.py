"""PM4 packets of compute queues: checked once for their words, and reduced to what has to be done.

Everything that is not modelled is a :class:`BadPacket` or :class:`BadState` that names it. Layouts, and which
bits are reserved, are declared in :mod:`ringfence.hardware.amd.pm4`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.hardware.amd.registers import MAPS, RegisterMap
from ringfence.virtual.amd.state import SH_COUNT, SH_FIRST
from ringfence.virtual.checks import BadPacket, BadState

ADD_RTN_64 = 0x2F  # ATOMIC_MEM: the operation of the L2 that runtimes use
_U32 = 0xFFFFFFFF


class Do(Enum):
    """What the command processor does for a packet, with which argument."""

    ACQUIRE = 1
    ATOMIC_ADD = 2
    COND_EXEC = 3
    COPY_DATA = 4
    DISPATCH_DIRECT = 5
    DISPATCH_INDIRECT = 6
    DMA_COPY = 7
    DMA_FILL = 8
    FLUSH = 9
    INDIRECT_BUFFER = 10
    NOTHING = 11
    PRED_EXEC = 12
    RELEASE = 13
    SET_SH = 14
    SET_UCONFIG = 15
    WAIT = 16
    WAIT_REGISTER = 17
    WRITE_DATA = 18
    WRITE_REGISTERS = 19


Argument = tuple[Any, ...]
Prepared = tuple[Do, Argument]


@functools.lru_cache(4096)
def header(word: int) -> tuple[Opcode | None, int]:
    try:
        header = pm4.decode_header(word)
    except ValueError as error:
        raise BadPacket(str(error)) from error
    return header.opcode, header.count


@functools.lru_cache(1 << 15)
def prepare(generation: Generation, opcode: Opcode | None, body: tuple[int, ...]) -> Prepared:
    """Check a packet; return what it does."""
    if opcode is None:
        return Do.NOTHING, ()
    if opcode in pm4.KERNEL_ONLY:
        raise BadPacket(f"{opcode.name} works in queues of the kernel only")
    if opcode in pm4.GRAPHICS_ONLY or opcode not in _PREPARE:
        raise BadPacket(f"{opcode.name} is not modelled: it is no part of compute work")
    try:
        pm4.decode_body(generation, opcode, body)
    except ValueError as error:
        raise BadPacket(str(error)) from error
    return _PREPARE[opcode](generation, body)


def _nothing(_: Generation, body: tuple[int, ...]) -> Prepared:
    return Do.NOTHING, ()


def _acquire_mem(_: Generation, body: tuple[int, ...]) -> Prepared:
    return Do.ACQUIRE, ()


def _set_sh_reg(generation: Generation, body: tuple[int, ...]) -> Prepared:
    if pm4.SET_SH_REG_0.get(body[0], "INDEX") or pm4.SET_SH_REG_0.get(body[0], "VMID_SHIFT"):
        raise BadPacket("SET_SH_REG with INDEX or VMID_SHIFT is for queues of the kernel")
    first = pm4.SET_SH_REG_0.get(body[0], "REG_OFFSET")
    if first + len(body) - 1 > SH_COUNT:
        raise BadPacket(f"SET_SH_REG writes beyond register {SH_FIRST + SH_COUNT:#x}")
    for index, value in enumerate(body[1:]):
        check_register(MAPS[generation], SH_FIRST + first + index, value)
    return Do.SET_SH, (first, first + len(body) - 1, body[1:])


def _set_uconfig_reg(generation: Generation, body: tuple[int, ...]) -> Prepared:
    first = pm4.UCONFIG_REG_START + pm4.SET_UCONFIG_REG_0.get(body[0], "REG_OFFSET")
    for index, value in enumerate(body[1:]):
        check_register(MAPS[generation], first + index, value)
    return Do.SET_UCONFIG, (first, *body[1:])


_NOT_WRITTEN = {
    "COMPUTE_DISPATCH_INITIATOR": "only dispatch packets write it",
    "COMPUTE_VMID": "it belongs to the kernel",
}


def check_register(declared: RegisterMap, offset: int, value: int) -> None:
    """Refuse a write that the hardware, or this model of it, could not stand."""
    register = declared.at(offset)
    if register is None:
        raise BadState(f"register {offset:#06x} is not known on {declared.generation.name}")
    if why := _NOT_WRITTEN.get(register.__name__):
        raise BadState(f"{register.__name__} cannot be written: {why}")
    if unknown := register.unknown(value):
        raise BadState(f"{declared.name_at(offset)} = {value:#x} sets reserved bits {unknown:#x}")


def _event_write(_: Generation, body: tuple[int, ...]) -> Prepared:
    event = pm4.Event(pm4.EVENT_WRITE_0.get(body[0], "EVENT_TYPE"))
    index = pm4.EVENT_WRITE_0.get(body[0], "EVENT_INDEX")
    if event is not pm4.Event.CS_PARTIAL_FLUSH:
        raise BadPacket(f"event {event.name} is not modelled")
    if index != pm4.EventWriteIndex.CS_PARTIAL_FLUSH or len(body) != 1:
        raise BadPacket(f"CS_PARTIAL_FLUSH takes EVENT_INDEX 4 and no address, not {index}")
    return Do.FLUSH, ()


_RELEASE_EVENTS = {
    pm4.Event.CACHE_FLUSH_TS: pm4.ReleaseIndex.END_OF_PIPE,
    pm4.Event.CACHE_FLUSH_AND_INV_TS_EVENT: pm4.ReleaseIndex.END_OF_PIPE,
    pm4.Event.BOTTOM_OF_PIPE_TS: pm4.ReleaseIndex.END_OF_PIPE,
    pm4.Event.CS_DONE: pm4.ReleaseIndex.SHADER_DONE,
}
_RELEASE_SIZES = {
    pm4.DataSel.NONE: 0,
    pm4.DataSel.SEND_32_BIT_LOW: 4,
    pm4.DataSel.SEND_64_BIT_DATA: 8,
    pm4.DataSel.SEND_GPU_CLOCK_COUNTER: 8,
}
_INTERRUPTS = {
    pm4.IntSel.NONE: 0,
    pm4.IntSel.SEND_INTERRUPT_ONLY: 1,
    pm4.IntSel.SEND_INTERRUPT_AFTER_WRITE_CONFIRM: 1,
    pm4.IntSel.SEND_DATA_AFTER_WRITE_CONFIRM: 0,
}


def _release_mem(generation: Generation, body: tuple[int, ...]) -> Prepared:
    event = pm4.Event(pm4.RELEASE_MEM_0.get(body[0], "EVENT_TYPE"))
    index = pm4.RELEASE_MEM_0.get(body[0], "EVENT_INDEX")
    if event not in _RELEASE_EVENTS:
        raise BadPacket(f"RELEASE_MEM of event {event.name} is not modelled")
    if index != _RELEASE_EVENTS[event]:
        raise BadPacket(f"{event.name} takes EVENT_INDEX {int(_RELEASE_EVENTS[event])}, not {index}")
    if generation is not Generation.GFX9 and pm4.RELEASE_MEM_0.get(body[0], "PWS_ENABLE"):
        raise BadPacket("RELEASE_MEM with PWS_ENABLE is not modelled")
    get = pm4.RELEASE_MEM_1.get
    if get(body[1], "DST_SEL") not in (pm4.ReleaseDst.MEMORY_CONTROLLER, pm4.ReleaseDst.TC_L2):
        raise BadPacket("RELEASE_MEM to a queue's write pointer is not modelled")
    if generation is not Generation.GFX9 and (get(body[1], "MES_INTR_PIPE") or get(body[1], "MES_ACTION_ID")):
        raise BadPacket("RELEASE_MEM with MES fields is for queues of the kernel")
    data, interrupt = pm4.DataSel(get(body[1], "DATA_SEL")), pm4.IntSel(get(body[1], "INT_SEL"))
    if data not in _RELEASE_SIZES:
        raise BadPacket(f"RELEASE_MEM with DATA_SEL={data.name} is not modelled")
    if interrupt not in _INTERRUPTS:
        raise BadPacket(f"RELEASE_MEM with INT_SEL={interrupt.name} is not modelled")
    value = -1 if data is pm4.DataSel.SEND_GPU_CLOCK_COUNTER else body[5] << 32 | body[4]
    size = _RELEASE_SIZES[data]
    if size == 4:
        value &= _U32
    return Do.RELEASE, (
        body[3] << 32 | body[2],
        size,
        value,
        _INTERRUPTS[interrupt],
        body[6],
    )


def _wait_reg_mem(generation: Generation, body: tuple[int, ...]) -> Prepared:
    function = _wait_function(generation, body[0])
    operation = pm4.WAIT_REG_MEM_0.get(body[0], "OPERATION")
    if operation == pm4.WaitOperation.WR_WAIT_WR_REG:
        _check_hdp_flush(generation, body[1], body[2])
        return Do.NOTHING, ()  # memory is coherent here, so the flush is done at once
    if pm4.WAIT_REG_MEM_0.get(body[0], "MEM_SPACE") == pm4.MemSpace.REGISTER_SPACE:
        return Do.WAIT_REGISTER, (function, body[1], body[3], body[4])
    return Do.WAIT, (function, body[2] << 32 | body[1], 4, body[3], body[4])


def _wait_reg_mem64(generation: Generation, body: tuple[int, ...]) -> Prepared:
    function = _wait_function(generation, body[0])
    word = body[0]
    if (
        pm4.WAIT_REG_MEM_0.get(word, "OPERATION") == pm4.WaitOperation.WR_WAIT_WR_REG
        or pm4.WAIT_REG_MEM_0.get(word, "MEM_SPACE") != pm4.MemSpace.MEMORY_SPACE
    ):
        raise BadPacket("WAIT_REG_MEM64 is modelled for memory only")
    address, reference, mask = (body[i + 1] << 32 | body[i] for i in (1, 3, 5))
    return Do.WAIT, (function, address, 8, reference, mask)


def _wait_function(generation: Generation, word: int) -> int:
    names = ("ENGINE",) if generation is Generation.GFX9 else ("ENGINE", "MES_INTR_PIPE", "MES_ACTION")
    for name in names:
        if pm4.WAIT_REG_MEM_0.get(word, name):
            raise BadPacket(f"WAIT_REG_MEM with {name} is not for compute queues")
    return pm4.WAIT_REG_MEM_0.get(word, "FUNCTION")


def _check_hdp_flush(generation: Generation, request: int, done: int) -> None:
    declared = MAPS[generation]
    names = "BIF_BX_PF0_GPU_HDP_FLUSH_REQ", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE"
    if (request, done) != tuple(declared.offset(name) for name in names):
        raise BadPacket(
            f"WAIT_REG_MEM writes {declared.name_at(request)} and waits for {declared.name_at(done)}; "
            f"only the HDP flush ({names[0]}, {names[1]}) is modelled"
        )


def _write_data(_: Generation, body: tuple[int, ...]) -> Prepared:
    if pm4.WRITE_DATA_0.get(body[0], "ENGINE_SEL"):
        raise BadPacket("WRITE_DATA with ENGINE_SEL is not for compute queues")
    repeated = pm4.WRITE_DATA_0.get(body[0], "ADDR_INCR")
    target = pm4.WRITE_DATA_0.get(body[0], "DST_SEL")
    if target in (pm4.WriteDst.TC_L2, pm4.WriteDst.MEMORY):
        return Do.WRITE_DATA, (body[2] << 32 | body[1], repeated, *body[3:])
    if target == pm4.WriteDst.MEM_MAPPED_REGISTER:
        return Do.WRITE_REGISTERS, (body[1], repeated, *body[3:])
    raise BadPacket(f"WRITE_DATA to {pm4.WriteDst(target).name} is not modelled")


_COPY_SOURCES = (
    pm4.CopySrc.MEM_MAPPED_REGISTER,
    pm4.CopySrc.MEMORY,
    pm4.CopySrc.TC_L2,
    pm4.CopySrc.IMMEDIATE_DATA,
    pm4.CopySrc.GPU_CLOCK_COUNT,
)
_COPY_TARGETS = (pm4.CopyDst.MEM_MAPPED_REGISTER, pm4.CopyDst.TC_L2, pm4.CopyDst.MEMORY)


def _copy_data(_: Generation, body: tuple[int, ...]) -> Prepared:
    get = pm4.COPY_DATA_0.get
    source, destination = pm4.CopySrc(get(body[0], "SRC_SEL")), pm4.CopyDst(get(body[0], "DST_SEL"))
    if source not in _COPY_SOURCES or destination not in _COPY_TARGETS:
        raise BadPacket(f"COPY_DATA from {source.name} to {destination.name} is not modelled")
    size = 8 if get(body[0], "COUNT_SEL") else 4
    to_memory = destination is not pm4.CopyDst.MEM_MAPPED_REGISTER
    target = body[4] << 32 | body[3] if to_memory else body[3]
    return Do.COPY_DATA, (int(source), body[1], body[2], int(destination), target, size)


def _dma_data(_: Generation, body: tuple[int, ...]) -> Prepared:
    source = pm4.DmaSrc(pm4.DMA_DATA_0.get(body[0], "SRC_SEL"))
    destination = pm4.DmaDst(pm4.DMA_DATA_0.get(body[0], "DST_SEL"))
    for name in ("SAS", "DAS", "SAIC", "DAIC"):
        if pm4.DMA_DATA_5.get(body[5], name):
            raise BadPacket(f"DMA_DATA with {name} is not modelled")
    if destination not in (pm4.DmaDst.DST_ADDR_USING_DAS, pm4.DmaDst.DST_ADDR_USING_L2):
        raise BadPacket(f"DMA_DATA to {destination.name} is not modelled")
    target, count = body[4] << 32 | body[3], pm4.DMA_DATA_5.get(body[5], "BYTE_COUNT")
    if source is pm4.DmaSrc.DATA:
        return Do.DMA_FILL, (body[1], target, count)
    if source is pm4.DmaSrc.GDS:
        raise BadPacket("DMA_DATA from GDS is not modelled")
    return Do.DMA_COPY, (body[2] << 32 | body[1], target, count)


def _atomic_mem(_: Generation, body: tuple[int, ...]) -> Prepared:
    operation, command = (pm4.ATOMIC_MEM_0.get(body[0], name) for name in ("ATOMIC", "COMMAND"))
    if operation != ADD_RTN_64 or command != pm4.AtomicCommand.SINGLE_PASS_ATOMIC:
        raise BadPacket(f"ATOMIC_MEM {operation:#x}, command {command}: only a single 64-bit add is modelled")
    address = body[2] << 32 | body[1]
    if address % 8:
        raise BadPacket(f"ATOMIC_MEM of 64 bits at {address:#x}, which is not 8-byte aligned")
    return Do.ATOMIC_ADD, (address, body[4] << 32 | body[3])


def _cond_exec(_: Generation, body: tuple[int, ...]) -> Prepared:
    return Do.COND_EXEC, (
        body[1] << 32 | body[0],
        pm4.COND_EXEC_3.get(body[3], "EXEC_COUNT"),
    )


def _pred_exec(_: Generation, body: tuple[int, ...]) -> Prepared:
    mask, count = (pm4.PRED_EXEC_0.get(body[0], name) for name in ("VIRTUAL_XCC_ID_SELECT", "EXEC_COUNT"))
    return Do.PRED_EXEC, (mask, count)


def _indirect_buffer(_: Generation, body: tuple[int, ...]) -> Prepared:
    get = pm4.INDIRECT_BUFFER_2.get
    if not get(body[2], "VALID"):
        raise BadPacket("INDIRECT_BUFFER without VALID")
    for name in ("VMID", "PRIV"):
        if get(body[2], name):
            raise BadPacket(f"INDIRECT_BUFFER with {name} is for queues of the kernel")
    size = get(body[2], "IB_SIZE")
    if not size:
        raise BadPacket("INDIRECT_BUFFER of 0 dwords")
    return Do.INDIRECT_BUFFER, (body[1] << 32 | body[0], size, get(body[2], "CHAIN"))


def _dispatch_direct(_: Generation, body: tuple[int, ...]) -> Prepared:
    return Do.DISPATCH_DIRECT, body


def _dispatch_indirect(_: Generation, body: tuple[int, ...]) -> Prepared:
    return Do.DISPATCH_INDIRECT, (body[1] << 32 | body[0], body[2])


_PREPARE: dict[Opcode, Callable[[Generation, tuple[int, ...]], Prepared]] = {
    Opcode.NOP: _nothing,
    Opcode.ACQUIRE_MEM: _acquire_mem,
    Opcode.SET_SH_REG: _set_sh_reg,
    Opcode.SET_UCONFIG_REG: _set_uconfig_reg,
    Opcode.EVENT_WRITE: _event_write,
    Opcode.RELEASE_MEM: _release_mem,
    Opcode.WAIT_REG_MEM: _wait_reg_mem,
    Opcode.WAIT_REG_MEM64: _wait_reg_mem64,
    Opcode.WRITE_DATA: _write_data,
    Opcode.COPY_DATA: _copy_data,
    Opcode.DMA_DATA: _dma_data,
    Opcode.ATOMIC_MEM: _atomic_mem,
    Opcode.COND_EXEC: _cond_exec,
    Opcode.PRED_EXEC: _pred_exec,
    Opcode.INDIRECT_BUFFER: _indirect_buffer,
    Opcode.DISPATCH_DIRECT: _dispatch_direct,
    Opcode.DISPATCH_INDIRECT: _dispatch_indirect,
}

MODELLED = frozenset(_PREPARE)
"""The packets that a virtual command processor executes."""


def packets(generation: Generation, words: Sequence[int]) -> Iterator[Prepared]:
    """Return what has to be done for the packets in ``words``, up to the first that is wrong or not whole."""
    at = 0
    while at < len(words):
        try:
            opcode, count = header(words[at])
            end = at + 1 + count
            if end > len(words):
                return
            yield prepare(generation, opcode, tuple(words[at + 1 : end]))
        except (BadPacket, BadState):
            return
        at = end
