"""A small KFD client for tests of the virtual device, and command streams written by hand.

It encodes with the packets of ``hardware/amd`` and its own register numbers: it is no driver.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

from ringfence.errors import FaultReport, PortError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags, EventType, queue_sizes
from ringfence.hardware.amd.pm4 import Opcode, packet
from ringfence.hardware.amd.topology import NODES_ROOT, NodeProperties
from ringfence.hardware.fields import Ioctl
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.machine import Machine
from ringfence.virtual.memory import AddressSpace

PAGE = 4096
USUAL = AllocFlags.WRITABLE | AllocFlags.EXECUTABLE | AllocFlags.NO_SUBSTITUTE
VRAM = USUAL | AllocFlags.VRAM | AllocFlags.PUBLIC
GTT = USUAL | AllocFlags.GTT | AllocFlags.COHERENT | AllocFlags.UNCACHED
USERPTR = USUAL | AllocFlags.USERPTR | AllocFlags.PUBLIC
RSRC1 = 0xE0AF0000  # 8 VGPRs, denormals kept, WGP mode
RSRC2 = 0x00000B84  # two user SGPRs, all ids
WAVE32, WAVE64 = 0x8005, 0x5


class FakeExecutor:
    """Runs no program: it records dispatches and calls ``action`` for each."""

    def __init__(self, action: Callable[[Dispatch, AddressSpace], FaultReport | None] | None = None) -> None:
        self.action = action
        self.ran: list[Dispatch] = []
        self.prepared: list[Dispatch] = []

    def prepare(self, dispatches: Iterable[Dispatch]) -> None:
        self.prepared.extend(dispatches)

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> FaultReport | None:
        self.ran.append(dispatch)
        return self.action(dispatch, memory) if self.action is not None else None


class Buffer:
    """An object, mapped on the GPU and for the CPU at the same address."""

    def __init__(self, client: Client, handle: int, address: int, size: int, reserved: bool) -> None:
        self.client, self.handle, self.address, self.size = client, handle, address, size
        self.reserved = reserved

    def write(self, data: bytes, offset: int = 0) -> None:
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, size: int, offset: int = 0) -> bytes:
        return ctypes.string_at(self.address + offset, size)

    def u32(self, offset: int = 0) -> int:
        return int.from_bytes(self.read(4, offset), "little")

    def u64(self, offset: int = 0) -> int:
        return int.from_bytes(self.read(8, offset), "little")

    def words(self, words: Iterable[int], offset: int = 0) -> None:
        words = list(words)
        self.write(struct.pack(f"<{len(words)}I", *words), offset)

    def free(self) -> None:
        self.client.unmap(self.handle)
        self.client.call(kfd.FREE_MEMORY_OF_GPU(handle=self.handle))
        if self.reserved:
            self.client.machine.munmap(self.address, self.size)


class Queue:
    """A compute queue with its buffers."""

    def __init__(self, client: Client, ring_bytes: int = PAGE, **changed: Any) -> None:
        self.client = client
        sizes = client.sizes
        self.ring = client.buffer(ring_bytes, GTT)
        self.pointers = client.buffer(PAGE, GTT)
        self.eop = client.buffer(sizes.eop_buffer_size)
        self.save = client.buffer(sizes.cwsr_allocation)
        self.buffers = (self.ring, self.pointers, self.eop, self.save)
        self.wptr = 0
        made = client.call(self.argument(**changed))
        self.id, self.doorbell_offset = made.queue_id, made.doorbell_offset
        self.bell = client.machine.doorbell(client.doorbell_address(self.doorbell_offset))

    def argument(self, **changed: Any) -> kfd.CREATE_QUEUE:
        sizes = self.client.sizes
        fields = {
            "ring_base_address": self.ring.address,
            "ring_size": self.ring.size,
            "read_pointer_address": self.pointers.address + 128,
            "write_pointer_address": self.pointers.address + 56,
            "gpu_id": self.client.gpu_id,
            "queue_percentage": 100,
            "queue_priority": 7,
            "eop_buffer_address": self.eop.address,
            "eop_buffer_size": self.eop.size,
            "ctx_save_restore_address": self.save.address,
            "ctx_save_restore_size": sizes.cwsr_size,
            "ctl_stack_size": sizes.ctl_stack_size,
        }
        return kfd.CREATE_QUEUE(**fields | changed)

    @property
    def rptr(self) -> int:
        return self.pointers.u64(128)

    def put(self, words: Iterable[int]) -> None:
        """Write packets to the ring without telling anybody."""
        dwords = self.ring.size // 4
        for word in words:
            self.ring.words([word], 4 * (self.wptr % dwords))
            self.wptr += 1

    def ring_bell(self) -> None:
        self.pointers.write(self.wptr.to_bytes(8, "little"), 56)
        self.bell(self.wptr)

    def submit(self, words: Iterable[int]) -> None:
        self.put(words)
        self.ring_bell()

    def run(self, words: Iterable[int]) -> None:
        """Submit packets and wait for the event that they end with."""
        self.submit([*words, *self.client.signal()])
        self.client.wait()

    def lost(self, words: Iterable[int]) -> FaultReport:
        """Submit packets that make the queue fail; return the report."""
        self.submit(words)
        self.client.wait(failing=True)
        report = self.client.machine.explain(self.client.fd, self.id)
        assert report is not None
        return report

    def destroy(self) -> None:
        self.client.call(kfd.DESTROY_QUEUE(queue_id=self.id))
        for buffer in self.buffers:
            buffer.free()


class Client:
    """``/dev/kfd``, a render node, an address space, an event page and the three usual events.

    ``beside`` is a client of another GPU, with which this one shares descriptor, page and events.
    """

    def __init__(self, machine: Machine, index: int = 0, *, beside: Client | None = None) -> None:
        self.machine = machine
        self.fd = machine.open("/dev/kfd") if beside is None else beside.fd
        root = f"{NODES_ROOT}/{index + 1}"
        self.node = NodeProperties.parse(machine.read_text(f"{root}/properties"))
        self.gpu_id = int(machine.read_text(f"{root}/gpu_id"))
        self.sizes = queue_sizes(self.node)
        self.drm = machine.open(f"/dev/dri/renderD{self.node.drm_render_minor}")
        self.call(kfd.ACQUIRE_VM(drm_fd=self.drm, gpu_id=self.gpu_id))
        self._doorbells = 0
        if beside is not None:
            self.page, self.event = beside.page, beside.event
            self.memory_event, self.exception_event = beside.memory_event, beside.exception_event
            self.map(self.page.handle)
            return
        self.page = self.buffer(kfd.EVENT_PAGE_BYTES, GTT)
        self.event = self.create_event(auto_reset=1, event_page_offset=self.page.handle)
        self.memory_event = self.create_event(EventType.MEMORY)
        self.exception_event = self.create_event(EventType.HW_EXCEPTION)

    def call(self, argument: Ioctl) -> Any:
        self.machine.ioctl(self.fd, argument)
        return argument

    def close(self) -> None:
        self.machine.close(self.drm)
        self.machine.close(self.fd)

    # ----- memory -----------------------------------------------------------------------------

    def alloc(self, size: int = PAGE, flags: int = VRAM, **changed: Any) -> kfd.ALLOC_MEMORY_OF_GPU:
        fields = {"size": size, "flags": flags, "gpu_id": self.gpu_id}
        return self.call(kfd.ALLOC_MEMORY_OF_GPU(**fields | changed))

    def map(self, handle: int, *gpu_ids: int) -> kfd.MAP_MEMORY_TO_GPU:
        return self._devices(kfd.MAP_MEMORY_TO_GPU, handle, gpu_ids)

    def unmap(self, handle: int, *gpu_ids: int) -> kfd.UNMAP_MEMORY_FROM_GPU:
        return self._devices(kfd.UNMAP_MEMORY_FROM_GPU, handle, gpu_ids)

    def _devices(self, kind: Any, handle: int, gpu_ids: tuple[int, ...]) -> Any:
        ids = gpu_ids or (self.gpu_id,)
        array = (ctypes.c_uint32 * len(ids))(*ids)
        return self.call(
            kind(handle=handle, device_ids_array_ptr=ctypes.addressof(array), n_devices=len(ids))
        )

    def buffer(self, size: int = PAGE, flags: int = VRAM) -> Buffer:
        address = self.machine.reserve(-(-size // PAGE) * PAGE)
        made = self.alloc(size, flags, va_addr=address)
        length = -(-size // PAGE) * PAGE
        assert self.machine.mmap(self.drm, length, made.mmap_offset, address=address) == address
        self.map(made.handle)
        return Buffer(self, made.handle, address, length, True)

    def imported(self, address: int, size: int, flags: int = USERPTR) -> Buffer:
        made = self.alloc(size, flags, va_addr=address, mmap_offset=address)
        self.map(made.handle)
        return Buffer(self, made.handle, address, size, False)

    def doorbell_address(self, offset: int) -> int:
        slice_offset, place = kfd.split_doorbell_offset(offset)
        if not self._doorbells:
            self._doorbells = self.machine.mmap(self.fd, kfd.DOORBELL_SLICE_BYTES, slice_offset)
        return self._doorbells + place

    # ----- events -----------------------------------------------------------------------------

    def create_event(self, kind: int = EventType.SIGNAL, **fields: int) -> kfd.CREATE_EVENT:
        return self.call(kfd.CREATE_EVENT(event_type=kind, **fields))

    def signal(self, event: kfd.CREATE_EVENT | None = None) -> list[int]:
        """Return the packet that signals an event."""
        event = event or self.event
        slot = self.page.address + 8 * event.event_slot_index
        return release(slot, event.event_id, interrupt=2, context=event.event_id)

    def wait_for(self, *events: Any, timeout: int = 1000, every: bool = False, **ages: int) -> Any:
        """WAIT_EVENTS; return the argument and the entries."""
        entries = (kfd.EVENT_DATA * max(1, len(events)))()
        for entry, event in zip(entries, events, strict=False):
            entry.event_id = event if isinstance(event, int) else event.event_id
            if "age" in ages:
                entry.signal_event_data.last_event_age = ages["age"]
        argument = kfd.WAIT_EVENTS(
            events_ptr=ctypes.addressof(entries),
            num_events=len(events),
            wait_for_all=int(every),
            timeout=timeout,
        )
        self.call(argument)
        return argument, entries

    def wait(self, *, failing: bool = False, timeout: int = 60_000) -> Any:
        """Wait for the usual three events; return their entries."""
        argument, entries = self.wait_for(
            self.event, self.memory_event, self.exception_event, timeout=timeout
        )
        failed = entries[1].memory_exception_data.gpu_id or entries[2].hw_exception_data.gpu_id
        assert argument.wait_result == kfd.WaitResult.COMPLETE
        assert bool(failed) == failing, self._reports()
        return entries

    def _reports(self) -> str:
        return "; ".join(str(self.machine.explain(self.fd, number)) for number in range(8))


@contextmanager
def refused(code: int, text: str = ""):
    """Expect a call of the port to fail with an errno."""
    with pytest.raises(PortError) as caught:
        yield caught
    assert caught.value.errno == code, f"{errno.errorcode.get(code, code)} expected: {caught.value}"
    assert text in str(caught.value)


# ----- streams ------------------------------------------------------------------------------------


def op(opcode: Opcode, *body: int) -> list[int]:
    return list(packet(opcode, *body))


def halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def sh(register: int, *values: int) -> list[int]:
    return op(Opcode.SET_SH_REG, register - 0x2C00, *values)


def write(address: int, *values: int) -> list[int]:
    return op(Opcode.WRITE_DATA, 5 << 8, *halves(address), *values)


def release(
    address: int, value: int = 0, *, data: int = 2, interrupt: int = 0, context: int = 0
) -> list[int]:
    selects = data << 29 | interrupt << 24
    return op(Opcode.RELEASE_MEM, 0x514, selects, *halves(address), *halves(value), context)


def wait_memory(address: int, reference: int, function: int = 5, mask: int = 0xFFFFFFFF) -> list[int]:
    return op(Opcode.WAIT_REG_MEM, function | 1 << 4, *halves(address), reference, mask, 4)


def indirect(address: int, dwords: int, flags: int = 1 << 23) -> list[int]:
    return op(Opcode.INDIRECT_BUFFER, *halves(address), dwords | flags)


FLUSH = op(Opcode.EVENT_WRITE, 0x407)
ACQUIRE = op(Opcode.ACQUIRE_MEM, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 4, 0xC3F1)
HDP_FLUSH = op(Opcode.WAIT_REG_MEM, 5 | 1 << 6, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4)


def dispatch(
    code: int,
    arguments: int = 0,
    /,
    *,
    groups: tuple[int, int, int] = (1, 1, 1),
    local: tuple[int, int, int] = (64, 1, 1),
    rsrc1: int = RSRC1,
    rsrc2: int = RSRC2,
    initiator: int = WAVE32,
    skip: tuple[str, ...] = (),
    **changed: list[int],
) -> list[int]:
    """Return what a runtime sends for one launch, by named parts; ``changed`` replaces, ``skip`` drops
    some.
    """
    parts = {
        "program": sh(0x2E0C, *halves(code >> 8)),
        "resources": sh(0x2E12, rsrc1, rsrc2),
        "resource3": sh(0x2E28, 0),
        "ring": sh(0x2E18, 0),
        "scratch": sh(0x2E10, 0, 0),
        "restart": sh(0x2E1B, 0, 0, 0),
        "user": sh(0x2E40, *halves(arguments)),
        "limits": sh(0x2E15, 0),
        "threads": sh(0x2E04, 0, 0, 0, *local, 0, 0),
        "dispatch": op(Opcode.DISPATCH_DIRECT, *groups, initiator),
    }
    parts.update(changed)
    return [word for name, words in parts.items() if name not in skip for word in words]
