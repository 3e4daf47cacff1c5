"""Which device ``--device`` means for a file that was compiled for some chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.cli.output import notice_once
from ringfence.errors import RingfenceError, UnsupportedDevice
from ringfence.virtual.specification import VIRTUAL_CHIPS, parse_virtual

if TYPE_CHECKING:
    from ringfence.api import Device

AMD_CHIP = "gfx1100"
"""What OpenCL C is compiled for if no device says otherwise."""
DEVICES = (
    "auto, kgsl, kfd, kfd:1, or virtual:CHIP such as virtual:a630 or virtual:gfx1100 "
    "(with settings: virtual:a630?strict=0&seed=7)"
)


def open_device(spec: str, chip: str, **options: Any) -> Device:
    """Open a device; ``auto`` is the first real one of the chip's family, or else a virtual one of the chip,
    with a notice.
    """
    import ringfence

    if spec != "auto":
        return ringfence.open(spec, **options)
    interface = "kfd" if chip.startswith("gfx") else "kgsl"
    try:
        return ringfence.open(interface, **options)
    except RingfenceError as error:
        reason = f"{interface}: {error}"
    if chip not in VIRTUAL_CHIPS:
        raise UnsupportedDevice(f"no real device ({reason}), and there is no virtual {chip}")
    device = ringfence.open(f"virtual:{chip}", **options)
    notice_once(f"ringfence: no real device ({reason}); using a virtual {chip}, which is not a GPU")
    return device


def chip_of(spec: str) -> str:
    """Return the chip of a device, which is opened for that unless it is a virtual one."""
    if spec.startswith("virtual:"):
        return parse_virtual(spec).chip
    with open_device(spec, AMD_CHIP) as device:
        return device.info.chip
