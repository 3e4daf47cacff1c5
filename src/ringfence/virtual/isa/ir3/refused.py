"""Why the instructions that decode but have no semantics here are refused."""

from __future__ import annotations

_NOT_COMPUTE = "it belongs to graphics shaders"
_UNDOCUMENTED = "what it does is not documented"
_DERIVATIVE = "compute kernels have no quads of pixels to take derivatives over"
_OTHER_CHIP = "a630 does not have it (Mesa freedreno_devices.py)"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("kill", "emit", "cut", "chmask", "chsh", "bary.f", "flat.b", "ldlv"), _NOT_COMPUTE),
    **dict.fromkeys(("flow_rev", "bkt", "brax", "setrm", "msad", "shb"), _UNDOCUMENTED),
    "brac": "the condition bits that it tests are not documented",
    **dict.fromkeys(("dp2acc", "dp4acc", "movs", "getfiberid"), _OTHER_CHIP),
    **dict.fromkeys(("wmm", "wmm.accu"), _UNDOCUMENTED),
    **dict.fromkeys(("dsx", "dsy", "dsxpp.1", "dsypp.1", "samgq", "getlod"), _DERIVATIVE),
    **dict.fromkeys(("samgp0", "samgp1", "samgp2", "samgp3"), _DERIVATIVE),
    **dict.fromkeys(("isamm", "rgetpos", "rgetinfo", "getpos"), "multisampled images are not modelled"),
    **dict.fromkeys(("conv", "convm"), "convolution filters are not modelled"),
    "getbuf": "buffer textures are not modelled",
    "resbase": "descriptors have no address here that a program could use",
    **dict.fromkeys(("getspid", "getwid"), "which processor or wave runs a group is not modelled"),
}
