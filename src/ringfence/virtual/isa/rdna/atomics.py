"""Atomic operations of a wave: lane after lane, lowest first, each atomic for other threads of the host."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.virtual.isa.rdna.translate import Translator

# Operations that LLVM has. inc: mem >= data ? 0 : mem + 1; dec: mem == 0 or mem > data ? data : mem - 1.
DIRECT = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "swap": "xchg",
          "inc": "uinc_wrap", "dec": "udec_wrap", "min_i": "min", "max_i": "max", "min_u": "umin",
          "max_u": "umax", "add_f": "fadd", "min_f": "fmin", "max_f": "fmax"}  # fmt: skip

# New value %n of memory from the old one %o, data %v and second operand %w, as IR; {t} is the integer type.
COMPUTED = {
    "rsub": "  %n = sub {t} %v, %o",
    "csub": "  %n = call {t} @llvm.usub.sat.{t}({t} %o, {t} %v)",
    "mskor": "  %m = xor {t} %v, -1\n  %k = and {t} %o, %m\n  %n = or {t} %k, %w",
    "wrap": (
        "  %c = icmp uge {t} %o, %v\n  %d = sub {t} %o, %v\n  %e = add {t} %o, %w\n"
        "  %n = select i1 %c, {t} %d, {t} %e"
    ),
    "cmpswap": "  %c = icmp eq {t} %o, %w\n  %n = select i1 %c, {t} %v, {t} %o",
    "cmpswap_f": (
        "  %fo = bitcast {t} %o to {f}\n  %fw = bitcast {t} %w to {f}\n  %c = fcmp oeq {f} %fo, %fw\n"
        "  %n = select i1 %c, {t} %v, {t} %o"
    ),
    "condxchg": (
        "  %ol = trunc i64 %o to i32\n  %os = lshr i64 %o, 32\n  %oh = trunc i64 %os to i32\n"
        "  %vl = trunc i64 %v to i32\n  %vs = lshr i64 %v, 32\n  %vh = trunc i64 %vs to i32\n"
        "  %cl = icmp slt i32 %vl, 0\n  %ml = and i32 %vl, 2147483647\n"
        "  %nl = select i1 %cl, i32 %ml, i32 %ol\n"
        "  %ch = icmp slt i32 %vh, 0\n  %mh = and i32 %vh, 2147483647\n"
        "  %nh = select i1 %ch, i32 %mh, i32 %oh\n"
        "  %zl = zext i32 %nl to i64\n  %zh = zext i32 %nh to i64\n  %up = shl i64 %zh, 32\n"
        "  %n = or i64 %up, %zl"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Atomic:
    """``name`` is a key of DIRECT or COMPUTED, ``bits`` the width."""

    name: str
    bits: int


def atomic(mnemonic: str) -> Atomic:
    """Return the operation of a mnemonic like ``add_u32``, ``min_rtn_i64`` or ``cmpstore_f32``."""
    operation, _, kind = mnemonic.replace("_rtn", "").rpartition("_")
    operation = {"cmpstore": "cmpswap", "storexchg": "swap", "condxchg32": "condxchg"}.get(
        operation, operation
    )
    if operation in ("min", "max"):
        operation = f"{operation}_{kind[0]}"
    elif kind[0] == "f":
        operation += "_f"
    return Atomic(operation, int(kind[1:]))


def run_atomic(t: Translator, operation: Atomic, host: str, bits: str, value: str, other: str | None) -> str:
    """Do an atomic at host addresses for the lanes of ``bits`` and return the old values.

    Other lanes get 0.
    """
    v = t.v
    name = f"atomic_{operation.name}_{operation.bits}"
    arguments = "ptr %addresses, ptr %values, ptr %others, ptr %results"
    t.lane_helper(name, arguments, _body(t, operation))
    vector = v.i64 if operation.bits == 64 else v.i32
    buffers = [t.alloca(f"atomic{k}", v.i64) for k in range(3)]
    v.line(f"store {v.i64} {host}, ptr %scratch, align 64")
    contents = (value, other if other is not None else "zeroinitializer", "zeroinitializer")
    for buffer, content in zip(buffers, contents, strict=True):
        v.line(f"store {vector} {content}, ptr {buffer}, align 64")
    passed = ", ".join(f"ptr {b}" for b in ("%scratch", *buffers))
    v.line(f"call void @{name}({passed}, {v.bits} {bits})")
    return v.new(f"load {vector}, ptr {buffers[2]}, align 64")


def _body(t: Translator, operation: Atomic) -> str:
    kind, align = f"i{operation.bits}", operation.bits // 8
    real = "float" if operation.bits == 32 else "double"
    head = f"""  %ap = getelementptr i64, ptr %addresses, i64 %lane
  %a = load ptr, ptr %ap, align 8
  %vp = getelementptr {kind}, ptr %values, i64 %lane
  %v = load {kind}, ptr %vp, align {align}
  %wp = getelementptr {kind}, ptr %others, i64 %lane
  %w = load {kind}, ptr %wp, align {align}
  %rp = getelementptr {kind}, ptr %results, i64 %lane
"""
    direct = DIRECT.get(operation.name)
    if direct is not None:
        element = real if operation.name.endswith("_f") else kind
        convert = f"  %x = bitcast {kind} %v to {element}\n"
        return (
            head
            + convert
            + f"""  %old = atomicrmw {direct} ptr %a, {element} %x seq_cst, align {align}
  store {element} %old, ptr %rp, align {align}"""
        )
    if operation.name == "csub":
        t.v.declarations[f"llvm.usub.sat.{kind}"] = f"declare {kind} @llvm.usub.sat.{kind}({kind}, {kind})"
    compute = COMPUTED[operation.name].replace("{t}", kind).replace("{f}", real)
    return (
        head
        + f"""  %start = load {kind}, ptr %a, align {align}
  br label %try
try:
  %o = phi {kind} [ %start, %body ], [ %seen, %try ]
{compute}
  %pair = cmpxchg ptr %a, {kind} %o, {kind} %n seq_cst seq_cst, align {align}
  %seen = extractvalue {{ {kind}, i1 }} %pair, 0
  %won = extractvalue {{ {kind}, i1 }} %pair, 1
  br i1 %won, label %done_lane, label %try
done_lane:
  store {kind} %o, ptr %rp, align {align}"""
    )
