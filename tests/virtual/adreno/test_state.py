"""Launches: what the registers and the loaded state add up to, and every way in which they can be wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from ringfence.errors import FaultReport
from ringfence.hardware.adreno.descriptors import pack_sampler, pack_texture, pack_uav
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.machine import Machine
from virtual.adreno.client import (
    LOAD_CONSTANTS,
    LOAD_SAMPLER,
    LOAD_SHADER,
    LOAD_TEXTURE,
    LOAD_UAV,
    Buffer,
    Client,
    FakeExecutor,
    dispatch,
    halves,
    load_state,
    op,
    reg,
)

CODE = bytes(range(128))


@dataclass
class Program:
    code: Buffer
    constants: Buffer
    images: Buffer


@pytest.fixture
def program(client: Client) -> Program:
    code, constants, images = client.buffer(label="relu"), client.buffer(), client.buffer(2 * 4096)
    code.write(CODE)
    constants.words(range(1024))
    return Program(code, constants, images)


def stream(program: Program, /, **changes) -> list[int]:
    return dispatch(program.code.gpu, program.constants.gpu, **changes)


def test_tinygrads_stream_becomes_a_dispatch(client: Client, program: Program, executor: FakeExecutor):
    client.run(stream(program, groups=(2, 3, 1), local=(32, 2, 1)))
    (run,) = executor.ran
    assert run.name == "relu"
    assert run.code == CODE
    assert run.constants == struct.pack("<1024I", *range(1024))
    assert (run.groups, run.local, run.threads) == ((2, 3, 1), (32, 2, 1), 64)
    assert (run.full_registers, run.half_registers, run.merged) == (4, 2, False)
    assert (run.workgroup_id_register, run.local_id_register) == (0xC0, 0)
    assert (run.workgroup_size_register, run.workgroup_offset_register, run.linear_id_register) == (0xFC,) * 3
    assert (run.shared_bytes, run.private_bytes) == (2048, 0)
    assert run.demote_constants and run.isam_mode == "gl"
    assert run.textures == run.uavs == run.samplers == ()


def test_launches_are_prepared_while_they_wait_in_the_queue(
    client: Client, program: Program, executor: FakeExecutor
):
    timestamp = client.submit(stream(program))
    assert len(executor.prepared) == 1 and not executor.ran
    client.wait(timestamp)
    assert executor.ran == executor.prepared


def test_looking_ahead_follows_nested_buffers_and_ignores_errors(
    client: Client, program: Program, executor: FakeExecutor
):
    inner = client.buffer()
    words = stream(program)
    inner.words(words)
    client.submit([*op(Opcode.INDIRECT_BUFFER, *halves(inner.gpu), len(words)), 0])
    assert len(executor.prepared) == 1


def test_mesas_variations_are_accepted(client: Client, program: Program, executor: FakeExecutor):
    client.run(
        stream(
            program,
            revalidate=[],
            tsize=reg(0xA9BA, 0),
            usize=reg(0xAA00, 0),
            ndrange=reg(0xB990, 1 | 63 << 2, 128, 0, 1, 0, 1, 0, 0x00FCFCC0, 0xFC, 1, 1, 1),
            program=reg(
                0xA9B0, 1 << 31 | 1 << 20 | 4 << 7, 0x41, 0, 0, *halves(program.code.gpu), 0, 0, 0, 0
            ),
            ids=reg(0xB997, 0x00FCFCC0, 0xFC | 1 << 9),
            config_regs=reg(0xB987, 64 // 4 | 0x100),
            constants=load_state(LOAD_CONSTANTS & ~(0x3FF << 22) | 64 << 22, program.constants.gpu),
        )
    )
    (run,) = executor.ran
    assert run.merged and run.threads == 128
    assert run.constants[:1024] == struct.pack("<256I", *range(256))
    assert run.constants[1024:] == b"\xef\xbe\xad\xde" * 768  # past CONSTLEN nothing can be relied on


def test_inline_constants_are_loaded_at_their_offset(
    client: Client, program: Program, executor: FakeExecutor
):
    inline = op(Opcode.LOAD_STATE6, 1 << 22 | 0xD << 18 | 1 << 14 | 8, 0, 0, 1, 2, 3, 4)
    client.run(stream(program, constants=inline))
    constants = executor.ran[0].constants
    assert constants[128:144] == struct.pack("<4I", 1, 2, 3, 4)
    assert constants[:128] == b"\xef\xbe\xad\xde" * 32


def test_constants_persist_between_launches_until_invalidated(
    client: Client, program: Program, executor: FakeExecutor
):
    client.run(stream(program) + stream(program, skip=("invalidate", "constants", "shader")))
    first, second = executor.ran
    assert first == second


def test_opencl_launches_take_their_groups_from_the_registers(
    client: Client, program: Program, executor: FakeExecutor
):
    client.run(
        stream(
            program,
            groups=(3, 2, 1),
            mode=reg(0xAB00, 2),
            tpl1=reg(0xB309, 1),
            ids=[],
            exec=op(Opcode.RUN_OPENCL, 0),
        )
    )
    (run,) = executor.ran
    assert run.groups == (3, 2, 1)
    assert not run.demote_constants and run.isam_mode == "cl"
    assert run.workgroup_size_register == 0xC0
    assert run.workgroup_offset_register == 0xCC
    assert run.workgroup_id_register == 0xCF


def test_indirect_launches_read_their_groups_from_memory(
    client: Client, program: Program, executor: FakeExecutor
):
    program.images.words([5, 1, 2])
    packet = op(Opcode.EXEC_CS_INDIRECT, 0, *halves(program.images.gpu), 63 << 2)
    client.run(stream(program, exec=packet))
    assert executor.ran[0].groups == (5, 1, 2)


def test_launches_of_no_groups_run_nothing(client: Client, program: Program, executor: FakeExecutor):
    client.run(stream(program, groups=(0, 1, 1)))
    assert not executor.ran


def images(
    program: Program, *, textures: int = 1, samplers: int = 1, uavs: int = 1, **load
) -> dict[str, list[int]]:
    """Return the parts of a launch with images.

    Textures at 0, UAVs at 0x800, samplers at 0xC00 of the image block.
    """
    at = program.images
    for i in range(textures):
        at.write(pack_texture(0x50_0000_0000 + i * 0x10000, 64, 2 + i, "float32"), 64 * i)
    for i in range(uavs):
        at.write(pack_uav(0x60_0000_0000 + i * 0x10000, 64, 2 + i, "float16"), 0x800 + 64 * i)
    for i in range(samplers):
        at.write(pack_sampler(), 0xC00 + 16 * i)
    loaded = min(16, load.get("loaded_textures", textures))
    border = program.constants.gpu + 0x800
    program.constants.write(bytes(0x800), 0x800)
    words = load_state(LOAD_SAMPLER & ~(0x3FF << 22) | samplers << 22, at.gpu + 0xC00)
    words += reg(0xA9E2, *halves(at.gpu + 0xC00)) + reg(0xB180, *halves(border))
    words += load_state(LOAD_TEXTURE & ~(0x3FF << 22) | loaded << 22, at.gpu)
    words += reg(0xA9E6, *halves(at.gpu + load.get("texture_base", 0)))
    words += load_state(LOAD_UAV & ~(0x3FF << 22) | uavs << 22, at.gpu + 0x800)
    words += reg(0xA9F2, *halves(at.gpu + 0x800))
    return {"resources": words, "config": reg(0xA9BB, 0x100 | textures << 9 | samplers << 17 | uavs << 22)}


def test_descriptors_reach_the_dispatch(client: Client, program: Program, executor: FakeExecutor):
    client.run(stream(program, **images(program, textures=2, samplers=2, uavs=1)))
    (run,) = executor.ran
    assert [(t.address, t.height) for t in run.textures] == [(0x50_0000_0000, 2), (0x50_0001_0000, 3)]
    assert [u.address for u in run.uavs] == [0x60_0000_0000]
    assert len(run.samplers) == 2 and all(s.unnormalised for s in run.samplers)


def test_textures_beyond_sixteen_come_from_their_base_address(
    client: Client, program: Program, executor: FakeExecutor
):
    client.run(stream(program, **images(program, textures=18)))
    assert [t.height for t in executor.ran[0].textures] == list(range(2, 20))


def test_a_uav_stays_loaded_when_only_the_compute_state_is_invalidated(
    client: Client, program: Program, executor: FakeExecutor
):
    parts = images(program)
    uav_load = load_state(LOAD_UAV, program.images.gpu + 0x800)
    again = dict(parts, resources=parts["resources"])
    without = list(again["resources"])
    at = next(i for i in range(len(without)) if without[i : i + len(uav_load)] == uav_load)
    again["resources"] = without[:at] + without[at + len(uav_load) :]
    client.run(stream(program, **parts) + stream(program, invalidate=reg(0xBB08, 0x20), **again))
    assert executor.ran[0].uavs == executor.ran[1].uavs


def test_private_memory_must_be_large_enough_and_mapped(
    client: Client, program: Program, executor: FakeExecutor
):
    stack = client.buffer(2 * 512 * 2048)

    def launch(base: int, total: int) -> list[int]:
        registers = [4 << 7, 0x41, 0, 0, *halves(program.code.gpu), 1, *halves(base), total]
        return stream(program, program=reg(0xA9B0, *registers))

    client.run(launch(stack.gpu, 256))
    assert executor.ran[0].private_bytes == 512
    report = client.lost(launch(stack.gpu, 255))
    assert "SP_CS_PVT_MEM_SIZE says" in report.message
    client.context = client.create_context()
    report = client.lost(launch(stack.gpu + 0x1000, 256))
    assert "private memory" in report.message and "is not mapped" in report.message


def part(**changes):
    return lambda program: changes


BAD_LAUNCHES = {
    "no marker": (part(marker=[]), "launch without SET_MARKER"),
    "no ndrange": (part(ndrange=[], ids=reg(0xB997, 0xFCFCC0, 0xFC)), "launch without SP_CS_NDRANGE_0"),
    "no const config": (part(config_regs=[]), "launch without SP_CS_CONST_CONFIG"),
    "no instruction size": (part(size=[]), "launch without SP_CS_INSTR_SIZE"),
    "instruction size 0": (part(size=reg(0xA9BC, 0)), "SP_CS_INSTR_SIZE is 0"),
    "no config": (part(config=[]), "launch without SP_CS_CONFIG"),
    "not enabled": (part(config=reg(0xA9BB, 0)), "ENABLED is 0"),
    "no constants": (part(constants=[]), "launch without a constant load"),
    "no shader": (part(shader=[]), "launch without a shader load"),
    "too few instruction units": (part(size=reg(0xA9BC, 2)), "is 2 units, but only 1 were loaded"),
    "unknown half of the constant file": (
        lambda p: {"constants": load_state(LOAD_CONSTANTS | 4, p.constants.gpu)},
        "runs past the 256",
    ),
    "constants at an odd place": (
        lambda p: {"constants": load_state(1 << 22 | 0x364000 | 2, p.constants.gpu)},
        "multiples of 4",
    ),
    "512 constants": (
        lambda p: {"program": reg(0xA9B0, 0, 0x61, 0, 0, *halves(p.code.gpu), 0, 0, 0, 0)},
        "CONSTLEN_512",
    ),
    "constlen beyond the mode": (part(config_regs=reg(0xB987, 0x100 | 65)), "CONSTLEN of SP_CS_CONST_CONFIG"),
    "shader elsewhere": (
        lambda p: {"program": reg(0xA9B0, 0, 0x41, 0, 0, *halves(p.code.gpu + 128), 0, 0, 0, 0)},
        "but SP_CS_BASE is",
    ),
    "shader from the middle": (lambda p: {"shader": load_state(LOAD_SHADER | 1, p.code.gpu)}, "at unit 1"),
    "entry point": (
        lambda p: {"program": reg(0xA9B0, 0, 0x41, 0, 16, *halves(p.code.gpu), 0, 0, 0, 0)},
        "PROGRAM_COUNTER_OFFSET is 16, but SP_CS_INSTR_SIZE 1 makes 16 instructions",
    ),
    "wave sizes disagree": (
        part(ids=reg(0xB997, 0xFCFCC0, 0xFC | 1 << 9)),
        "THREADSIZE is 0 in SP_CS_CNTL_0",
    ),
    "texel modes disagree": (part(tpl1=reg(0xB309, 1)), "ISAMMODE is 2 in SP_MODE_CNTL and 1"),
    "no texel mode": (part(tpl1=reg(0xB309, 0), mode=reg(0xAB00, 0)), "ISAMMODE 0 is unknown"),
    "dimension 0": (
        part(ndrange=reg(0xB990, 63 << 2, 128, 0, 1, 0, 1, 0, 0, 0xFC, 2, 1, 1)),
        "KERNELDIM of SP_CS_NDRANGE_0 is 0",
    ),
    "local size beyond the dimensions": (
        part(ndrange=reg(0xB990, 1 | 31 << 2 | 1 << 12, 64, 0, 2, 0, 1, 0, 0, 0xFC, 2, 1, 1)),
        "has KERNELDIM 1",
    ),
    "groups do not match": (part(exec=op(Opcode.EXEC_CS, 0, 3, 1, 1)), "SP_CS_NDRANGE says 128x1x1"),
    "reserved dword": (part(exec=op(Opcode.EXEC_CS, 1, 2, 1, 1)), "must be 0"),
    "too many threads": (part(local=(1024, 2, 1)), "2048 work-items"),
    "too many registers": (
        lambda p: {
            "local": (1024, 1, 1),
            "program": reg(0xA9B0, 24 << 7, 0x41, 0, 0, *halves(p.code.gpu), 0, 0, 0, 0),
        },
        "with 24 full and 0 half registers (vec4) a630 holds 512",
    ),
    "bindless": (part(config=reg(0xA9BB, 0x101)), "BINDLESS_TEX"),
    "shared constants": (part(mode=reg(0xAB00, 5 | 8)), "SHARED_CONSTS_ENABLE is not modelled"),
    "ubo load": (
        lambda p: {"resources": load_state(0x0076 << 16 | 2 << 14, p.images.gpu)},
        "UBO descriptors",
    ),
    "graphics load": (lambda p: {"resources": load_state(0x00720000, p.images.gpu)}, "no compute state"),
    "bindless load": (lambda p: {"shader": load_state(0x00750000, p.code.gpu)}, "BINDLESS is not modelled"),
    "load of nothing": (lambda p: {"shader": load_state(0x00360000, p.code.gpu)}, "0 units"),
    "short inline load": (
        part(constants=op(Opcode.LOAD_STATE6_FRAG, 1 << 22 | 0x344000, 0, 0, 1, 2)),
        "DIRECT of 16 bytes carries 8",
    ),
    "inline load with an address": (
        part(constants=op(Opcode.LOAD_STATE6_FRAG, 1 << 22 | 0x344000, 16, 0, 1, 2, 3, 4)),
        "must be zero",
    ),
    "indirect load with data": (
        lambda p: {"shader": op(Opcode.LOAD_STATE6_FRAG, LOAD_SHADER, *halves(p.code.gpu), 1)},
        "carries 4 bytes",
    ),
    "textures not loaded": (part(config=reg(0xA9BB, 0x100 | 1 << 9)), "launch without SP_CS_TEXMEMOBJ_BASE"),
    "too few textures": (
        lambda p: images(p, textures=3, loaded_textures=2),
        "has 3 textures, but texture 2 was not loaded",
    ),
    "textures elsewhere": (lambda p: images(p, texture_base=0x40), "texture descriptors were loaded from"),
    "textures unaligned": (lambda p: images(p, texture_base=0x20), "not 64-byte aligned"),
    "more textures than TSIZE": (
        lambda p: {**images(p, textures=2), "tsize": reg(0xA9BA, 1)},
        "SP_CS_TSIZE = 1",
    ),
    "more UAVs than USIZE": (lambda p: {**images(p, uavs=2), "usize": reg(0xAA00, 1)}, "SP_CS_USIZE = 1"),
}


@pytest.mark.parametrize("name", BAD_LAUNCHES)
def test_bad_launches_are_named(client: Client, program: Program, executor: FakeExecutor, name: str):
    changes, message = BAD_LAUNCHES[name]
    report = client.lost(stream(program, **changes(program)))
    assert report.kind in ("bad state", "bad packet")
    assert message in report.message
    assert not executor.ran


def test_a_broken_descriptor_is_named(client: Client, program: Program):
    parts = images(program)
    program.images.words([3], 0)  # tiled
    report = client.lost(stream(program, **parts))
    assert report.kind == "bad state" and "texture 0" in report.message and "TILE_MODE" in report.message


def test_a_border_colour_in_memory_reaches_the_dispatch(
    client: Client, program: Program, executor: FakeExecutor
):
    parts = images(program)
    client.run(stream(program, **parts))
    program.constants.words([1], 0x800)
    client.run(stream(program, **parts))
    assert [run.borders for run in executor.ran] == [(None,), (struct.pack("<I", 1).ljust(128, b"\0"),)]


def test_state_does_not_survive_the_submission(client: Client, program: Program, executor: FakeExecutor):
    client.run(stream(program))
    report = client.lost(op(Opcode.EXEC_CS, 0, 2, 1, 1))
    assert "was not written in this submission" in report.message


def test_invalidated_state_must_be_loaded_again(client: Client, program: Program, executor: FakeExecutor):
    report = client.lost(stream(program) + stream(program, skip=("constants",)))
    assert "launch without a constant load since SP_UPDATE_CNTL" in report.message
    assert len(executor.ran) == 1


def test_faults_of_programs_are_completed_with_packet_and_program(machine: Machine, executor: FakeExecutor):
    executor.action = lambda run, memory: FaultReport("memory", "write", pc=3, address=0x1234)
    client = Client(machine)
    code, constants = client.buffer(label="bad"), client.buffer()
    report = client.lost(dispatch(code.gpu, constants.gpu))
    assert (report.kind, report.program, report.pc, report.address) == ("memory", "bad", 3, 0x1234)
    assert "EXEC_CS(0x0, 0x2, 0x1, 0x1)" in report.packet


def test_unlabelled_programs_are_named_by_their_address(client: Client, executor: FakeExecutor):
    code, constants = client.buffer(), client.buffer()
    client.run(dispatch(code.gpu, constants.gpu))
    assert executor.ran[0].name == f"shader@{code.gpu:#x}"
