"""Events of the virtual KFD: the event page, ages, and waiting.

Rules are those of ``kfd_events.c``. A GPU signals an event by storing something in its slot of the event page
and interrupting; the kernel puts the slot back and wakes who waits.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import EventType, WaitResult
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import Backing, read_user, write_user

if TYPE_CHECKING:
    from ringfence.virtual.amd.objects import MemoryObject
    from ringfence.virtual.machine import Machine

FIRST_AGE = 1  # 0 in a wait means that the client does not track ages
_ENTRY = ctypes.sizeof(kfd.EVENT_DATA)
_MAX_WAIT = 1 << 16
_KNOWN_TYPES = frozenset(int(kind) for kind in EventType)
_SLOT_TYPES = (EventType.SIGNAL, EventType.DEBUG_EVENT)


@dataclass(slots=True, eq=False)
class Event:
    """An event. ``payload`` is what MEMORY and HW_EXCEPTION events carry."""

    id: int
    type: int
    auto_reset: bool
    signalled: bool = False
    age: int = FIRST_AGE
    payload: bytes = b""
    destroyed: bool = False
    waiters: list[_Waiter] = field(default_factory=list)

    @property
    def has_slot(self) -> bool:
        """Whether the GPU signals the event through the event page."""
        return self.type in _SLOT_TYPES

    def set(self) -> None:
        """Signal: every waiter of now is woken; an auto-reset event stays clear if there was one."""
        self.signalled = not self.auto_reset or not self.waiters
        self.age += 1
        for waiter in self.waiters:
            waiter.activated = True


@dataclass(slots=True, eq=False)
class _Waiter:
    """What one entry of a wait looks at. ``aged``: the client tracks the age of the event."""

    event: Event
    activated: bool
    aged: bool


class Events:
    """The events of the process."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._events: dict[int, Event] = {}
        self._page_object: MemoryObject | None = None
        self._own_page: Backing | None = None
        self._freed: dict[int, list[int]] = {}  # first id of a kind -> ids that are free again
        self._unused: dict[int, int] = {}  # first id of a kind -> the first that was never used

    def __len__(self) -> int:
        return len(self._events)

    def close(self) -> None:
        """Forget every event; whoever waits fails."""
        for number in list(self._events):
            self.destroy(number)
        if self._own_page is not None:
            self._machine.defer(self._own_page.release)
        self._page_object = self._own_page = None

    @property
    def own_page(self) -> Backing | None:
        """The event page that the kernel made because the client brought none."""
        return self._own_page

    def is_page(self, entry: MemoryObject) -> bool:
        """Return whether an object is the event page."""
        return entry is self._page_object

    # ----- creation ---------------------------------------------------------------------------

    def set_page(self, entry: MemoryObject) -> None:
        """Use a buffer of the client as the event page."""
        if self._page_object is not None or self._own_page is not None:
            raise Refused(errno.EINVAL, "the process has an event page already")
        if entry.backing is None:
            raise Refused(errno.EINVAL, "imported memory cannot be the event page")
        if entry.size < kfd.EVENT_PAGE_BYTES:
            raise Refused(
                errno.EINVAL, f"the event page has {entry.size:#x} bytes, expected {kfd.EVENT_PAGE_BYTES:#x}"
            )
        self._page_object = entry
        self._clear_slots()

    def _clear_slots(self) -> None:
        ctypes.memset(self._page, 0xFF, kfd.EVENT_PAGE_BYTES)

    @property
    def _page(self) -> int:
        if self._page_object is not None:
            return self._page_object.host_address
        assert self._own_page is not None
        return int(self._own_page.host_address)

    def create(self, kind: int, auto_reset: bool) -> Event:
        """Return a new event."""
        if kind not in _KNOWN_TYPES:
            raise Refused(errno.EINVAL, f"there is no event type {kind}")
        if kind in _SLOT_TYPES:
            if self._page_object is None and self._own_page is None:
                self._own_page = Backing(kfd.EVENT_PAGE_BYTES)
                self._clear_slots()
            number = self._lowest(1, kfd.SIGNAL_EVENT_LIMIT)
        else:
            number = self._lowest(kfd.FIRST_NONSIGNAL_EVENT_ID, kfd.LAST_NONSIGNAL_EVENT_ID + 1)
        event = self._events[number] = Event(number, kind, auto_reset)
        return event

    def _lowest(self, first: int, end: int) -> int:
        """Return the lowest free id of those from ``first`` on."""
        freed, unused = self._freed.setdefault(first, []), self._unused.setdefault(first, first)
        if freed:
            return heapq.heappop(freed)
        if unused >= end:
            raise Refused(errno.ENOSPC, f"all {end - first} slots of the event page are taken")
        self._unused[first] = unused + 1
        return unused

    def destroy(self, number: int) -> None:
        event = self._find(number)
        del self._events[number]
        heapq.heappush(self._freed[1 if event.has_slot else kfd.FIRST_NONSIGNAL_EVENT_ID], number)
        event.destroyed = True
        self._machine.notify()

    def _find(self, number: int) -> Event:
        event = self._events.get(number)
        if event is None:
            raise Refused(errno.EINVAL, f"no event has the id {number:#x}")
        return event

    def _signal_event(self, number: int) -> Event:
        event = self._find(number)
        if not event.has_slot:
            raise Refused(errno.EINVAL, f"event {number:#x} is a {EventType(event.type).name} event")
        return event

    # ----- signalling -------------------------------------------------------------------------

    def set(self, number: int) -> None:
        """SET_EVENT."""
        self._signal_event(number).set()
        self._machine.notify()

    def reset(self, number: int) -> None:
        """RESET_EVENT."""
        self._signal_event(number).signalled = False

    def interrupt(self, number: int) -> None:
        """A GPU interrupted with an event id: test that slot, or every slot if it is not signalled."""
        if self._page_object is None and self._own_page is None:
            return
        event = self._events.get(number)
        if event is None or not event.has_slot or not self._take(event):
            for each in self._events.values():
                if each.has_slot:
                    self._take(each)
        self._machine.notify()

    def _take(self, event: Event) -> bool:
        """Set an event whose slot holds something, and put the slot back; return whether it did."""
        slot = ctypes.c_uint64.from_address(self._page + event.id * kfd.SIGNAL_SLOT_BYTES)
        if slot.value == kfd.UNSIGNALED_EVENT_SLOT:
            return False
        slot.value = kfd.UNSIGNALED_EVENT_SLOT
        event.set()
        return True

    def raise_exception(self, kind: EventType, payload: ctypes.Structure) -> None:
        """Signal every event of a type with a payload."""
        for event in self._events.values():
            if event.type == kind:
                event.payload = bytes(payload)
                event.set()
        self._machine.notify()

    # ----- waiting ----------------------------------------------------------------------------

    def wait(self, argument: kfd.WAIT_EVENTS) -> None:
        """WAIT_EVENTS: sleep, copy what the signalled events carry, say how it ended."""
        argument.wait_result = WaitResult.FAIL
        waiters = self._begin(argument)
        try:
            done = _condition(waiters, bool(argument.wait_for_all))
            result = self._sleep(waiters, done, argument.timeout)
        except (
            KeyboardInterrupt
        ):  # the next wait is told, as by the kernel if a signal ends this one (kfd_events.c)
            for waiter in waiters:
                waiter.event.signalled |= waiter.activated and waiter.event.auto_reset
            raise
        finally:
            for waiter in waiters:
                if waiter in waiter.event.waiters:
                    waiter.event.waiters.remove(waiter)
        self._copy_back(argument.events_ptr, waiters)
        argument.wait_result = result

    def _begin(self, argument: kfd.WAIT_EVENTS) -> list[_Waiter]:
        if argument.num_events > _MAX_WAIT:
            raise Refused(errno.ENOMEM, f"{argument.num_events} events in one wait")
        data = read_user(argument.events_ptr, _ENTRY * argument.num_events) if argument.num_events else b""
        entries = [
            kfd.EVENT_DATA.from_buffer_copy(data, _ENTRY * index) for index in range(argument.num_events)
        ]
        events = [self._find(entry.event_id) for entry in entries]
        waiters = [_waiter(event, entry) for event, entry in zip(events, entries, strict=True)]
        for waiter in waiters:
            if not waiter.activated:
                waiter.event.waiters.append(waiter)
        return waiters

    def _sleep(self, waiters: Sequence[_Waiter], done: Callable[[], bool], timeout: int) -> WaitResult:
        machine = self._machine

        def over() -> bool:
            return done() or any(waiter.event.destroyed for waiter in waiters)

        if done() or not timeout:
            machine.progress()  # a client that asks again and again lets the GPUs work, too
        else:
            deadline = None
            if timeout != kfd.EVENT_TIMEOUT_INFINITE:
                deadline = machine.clock.now() + timeout / 1000
            if machine.faults.active and machine.faults.early("call"):
                return WaitResult.COMPLETE
            machine.wait_until(over, deadline)
        if any(waiter.event.destroyed for waiter in waiters):
            raise Refused(errno.EIO, "an event was destroyed while this call waited for it")
        return WaitResult.COMPLETE if done() else WaitResult.TIMEOUT

    @staticmethod
    def _copy_back(address: int, waiters: Sequence[_Waiter]) -> None:
        for index, waiter in enumerate(waiters):
            if waiter.activated and waiter.event.payload:
                write_user(address + index * _ENTRY, waiter.event.payload)
            elif waiter.activated and waiter.aged:
                write_user(address + index * _ENTRY, waiter.event.age.to_bytes(8, "little"))


def _waiter(event: Event, entry: kfd.EVENT_DATA) -> _Waiter:
    activated = event.signalled
    event.signalled = event.signalled and not event.auto_reset
    age = entry.signal_event_data.last_event_age
    aged = event.type == EventType.SIGNAL and age != 0
    return _Waiter(event, activated or (aged and age != event.age), aged)


def _condition(waiters: Sequence[_Waiter], every: bool) -> Callable[[], bool]:
    if not waiters:
        return lambda: True
    combine = all if every else any
    return lambda: combine(waiter.activated for waiter in waiters)
