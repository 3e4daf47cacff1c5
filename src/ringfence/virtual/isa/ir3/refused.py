"""Why instructions that decode are refused: they have no semantics here, or the chip does not have them."""

from __future__ import annotations

from ringfence.hardware.adreno.chips import CHIPS, Chip

_NOT_COMPUTE = "it belongs to graphics shaders"
_UNDOCUMENTED = "what it does is not documented"
_NOT_EMITTED = "Mesa's compiler never emits it, and how it rounds is not documented"
_DERIVATIVE = "compute kernels have no quads of pixels to take derivatives over"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("kill", "emit", "cut", "chmask", "chsh", "bary.f", "flat.b", "ldlv"), _NOT_COMPUTE),
    **dict.fromkeys(("flow_rev", "bkt", "brax", "setrm", "msad", "shb"), _UNDOCUMENTED),
    "brac": "the condition bits that it tests are not documented",
    **dict.fromkeys(("wmm", "wmm.accu"), _NOT_EMITTED),
    **dict.fromkeys(("dsx", "dsy", "dsxpp.1", "dsypp.1", "samgq", "getlod"), _DERIVATIVE),
    **dict.fromkeys(("samgp0", "samgp1", "samgp2", "samgp3"), _DERIVATIVE),
    **dict.fromkeys(("isamm", "rgetpos", "rgetinfo", "getpos"), "multisampled images are not modelled"),
    **dict.fromkeys(("conv", "convm"), "convolution filters are not modelled"),
    "getbuf": "buffer textures are not modelled",
    "resbase": "descriptors have no address here that a program could use",
    **dict.fromkeys(("getspid", "getwid"), "which processor or wave runs a group is not modelled"),
}

CHIP_SPECIFIC: dict[str, str] = {name: name for name in ("dp2acc", "dp4acc", "getfiberid", "movs")}
"""Instructions that only some chips have, and the fields of :class:`Chip` that tell which."""


def missing_on(chip: Chip, what: str, has: str) -> str | None:
    """Return why ``chip`` does not carry out ``what``, ``None`` if its field ``has`` says that it does."""
    if getattr(chip, has):
        return None
    others = ", ".join(other.name for other in CHIPS.values() if getattr(other, has))
    return f"{chip.name} does not have {what}; of the chips known here these do: {others}"
