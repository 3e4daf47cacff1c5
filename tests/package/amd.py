"""A small package for gfx1100, written by hand: y = 2 x, then z = y + w. The code is compiled LLVM IR."""

from __future__ import annotations

from functools import cache

from package.packages import COUNT, NBYTES, WEIGHTS
from ringfence.compile.opencl import compile_llvm_ir
from ringfence.package import Manifest, encode_package
from ringfence.package.format import PackedProgram, PlannedBuffer, SectionName, Step, Tensor


@cache
def code_object(name: str, reads: int, *, attributes: str = "readonly", more: str = "") -> bytes:
    """Return a kernel of ``COUNT`` work-items: twice its input, or the sum of two.

    ``attributes`` are those of the inputs, ``more`` are further parameters.
    """
    inputs = "".join(f", ptr addrspace(1) noalias {attributes} %in{k}" for k in range(reads))
    loads = "\n".join(
        f"  %p{k} = getelementptr float, ptr addrspace(1) %in{k}, i32 %id\n"
        f"  %v{k} = load float, ptr addrspace(1) %p{k}"
        for k in range(reads)
    )
    return compile_llvm_ir(f"""
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @{name}(ptr addrspace(1) noalias writeonly %out{inputs}{more})
    #0 !reqd_work_group_size !0 {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
{loads}
  %sum = fadd float %v0, %v{reads - 1}
  %place = getelementptr float, ptr addrspace(1) %out, i32 %id
  store float %sum, ptr addrspace(1) %place
  ret void
}}
attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="{COUNT},{COUNT}" "amdgpu-no-implicitarg-ptr" }}
!0 = !{{i32 {COUNT}, i32 1, i32 1}}
""")


def parts(first: bytes | None = None) -> tuple[Manifest, dict[SectionName, bytes]]:
    """Return manifest and sections of the package; ``first`` replaces its first program."""
    blobs = [first or code_object("double", 1), code_object("add", 2)]
    offset = -(-len(blobs[0]) // 256) * 256
    manifest = Manifest(
        name="tiny",
        target="gfx1100",
        image=False,
        float16=False,
        compiler={"by hand": "1"},
        model_sha256="0" * 64,
        inputs=(Tensor(name="x", dtype="float32", shape=(COUNT,), buffer=0),),
        outputs=(Tensor(name="z", dtype="float32", shape=(COUNT,), buffer=1),),
        arena_bytes=512,
        buffers=(
            PlannedBuffer(kind="input", nbytes=NBYTES),
            PlannedBuffer(kind="output", nbytes=NBYTES),
            PlannedBuffer(kind="arena", offset=256, nbytes=NBYTES),
            PlannedBuffer(kind="const", nbytes=NBYTES),
        ),
        programs=(
            PackedProgram(name="double", offset=0, nbytes=len(blobs[0])),
            PackedProgram(name="add", offset=offset, nbytes=len(blobs[1])),
        ),
        steps=(
            Step(program=0, buffers=(2, 0), groups=(1, 1, 1), local=(COUNT, 1, 1)),
            Step(program=1, buffers=(1, 2, 3), groups=(1, 1, 1), local=(COUNT, 1, 1)),
        ),
    )
    return manifest, {"programs": blobs[0].ljust(offset, b"\0") + blobs[1], "weights": WEIGHTS.tobytes()}


def package_bytes(first: bytes | None = None) -> bytes:
    """Return the package as a file would contain it."""
    return encode_package(*parts(first))
