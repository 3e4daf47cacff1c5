"""Packets with arbitrary bodies: the queue goes on or stops with a report; the virtual GPU never breaks."""

from __future__ import annotations

import random

import pytest

from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.pm4 import PACKETS, Opcode, packet
from ringfence.virtual.amd.packets import MODELLED
from ringfence.virtual.machine import Machine
from virtual.amd.client import Buffer, Client, FakeExecutor, Queue, dispatch, indirect

END = 0xBFB00000


def value(rng: random.Random, data: Buffer) -> int:
    """Return a dword: small, any, an address half, or a single bit."""
    return rng.choice(
        (
            rng.randrange(16),
            rng.getrandbits(32),
            data.address & 0xFFFFFFFF,
            data.address >> 32,
            1 << rng.randrange(32),
            rng.randrange(256, 4096),
        )
    )


def stream(rng: random.Random, data: Buffer) -> list[int]:
    layouts = PACKETS[Generation.GFX11]
    words: list[int] = []
    for _ in range(rng.randrange(1, 12)):
        opcode = rng.choice(sorted(layouts))
        layout = layouts[opcode]
        count = max(1, rng.choice(layout.sizes) + (rng.randrange(4) if layout.tail else 0))
        words += packet(opcode, *(value(rng, data) for _ in range(count)))
        if rng.random() < 0.05:
            words.append(rng.getrandbits(32))
    return words


@pytest.mark.parametrize("seed", range(8))
def test_arbitrary_packets_end_in_a_report_or_in_nothing(seed: int):
    rng = random.Random(seed)
    with Machine(("gfx1100",), clock="virtual", seed=seed, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        code = client.buffer()
        code.words([END])
        reports = []
        for _ in range(60):
            data = client.buffer(16 << 10)
            queue = Queue(client, 16 << 10)
            words = stream(rng, data)
            data.words(words)
            prefix = dispatch(code.address) if rng.random() < 0.5 else []
            queue.submit([*prefix, *(indirect(data.address, len(words)) if rng.random() < 0.5 else words)])
            machine.sleep(10.0)
            report = machine.explain(client.fd, queue.id)
            if report is not None:
                reports.append(report)
            queue.destroy()
            data.free()
        assert {report.kind for report in reports} <= {"bad packet", "bad state", "memory", "hang"}, reports
        assert len({report.message for report in reports}) > 10


def test_every_packet_of_compute_queues_is_modelled_or_refused_by_name():
    refused = set(PACKETS[Generation.GFX11]) - MODELLED
    assert refused == {
        Opcode.SET_BASE,
        Opcode.PFP_SYNC_ME,
        Opcode.SET_QUEUE_REG,
        Opcode.INVALIDATE_TLBS,
        Opcode.HDP_FLUSH,
    }
