"""The text form of a virtual device: ``virtual:<chip>[/<interface>][?option=value&...]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.adreno.chips import CHIPS

AMD_CHIPS = ("gfx1100", "gfx1101", "gfx1102")
"""The AMD chips whose machine code is executed: RDNA3."""
VIRTUAL_CHIPS: dict[str, str] = {chip.name: "kgsl" for chip in CHIPS.values()} | dict.fromkeys(
    AMD_CHIPS, "kfd"
)
"""Every chip that there is a virtual device of, with the interface that it is reached through."""


SEED_DIGITS = 1000


@dataclass(frozen=True, slots=True)
class VirtualSpec:
    """What ``virtual:<chip>[/<interface>][?options]`` asks for."""

    chip: str
    strict: bool = True
    seed: int = 0
    mode: Literal["inline", "async"] = "inline"
    clock: Literal["hybrid", "virtual", "real"] = "hybrid"
    coherent: bool = False

    @property
    def interface(self) -> str:
        """What the device is reached through."""
        return VIRTUAL_CHIPS[self.chip]


_CHOICES: dict[str, dict[str, Any]] = {
    "strict": {"0": False, "1": True},
    "mode": {"inline": "inline", "async": "async"},
    "clock": {"hybrid": "hybrid", "virtual": "virtual", "real": "real"},
    "coherent": {"0": False, "1": True},
}


def parse_virtual(spec: str) -> VirtualSpec:
    """Return what a ``virtual:...`` spec asks for; :class:`UnsupportedDevice` says what is wrong with it."""
    kind, _, rest = spec.partition(":")
    if kind != "virtual":
        raise UnsupportedDevice(f"device {spec!r}: a virtual device is called virtual:<chip>")
    target, _, query = rest.partition("?")
    chip, _, interface = target.partition("/")
    if chip not in VIRTUAL_CHIPS:
        known = ", ".join(VIRTUAL_CHIPS)
        raise UnsupportedDevice(f"device {spec!r}: there is no virtual {chip!r}, only {known}")
    if interface not in ("", VIRTUAL_CHIPS[chip]):
        raise UnsupportedDevice(
            f"device {spec!r}: {chip} is reached through {VIRTUAL_CHIPS[chip]}, not {interface!r}"
        )
    wanted = VirtualSpec(chip, **_options(spec, query))
    if (wanted.mode, wanted.clock) == ("async", "virtual"):
        raise UnsupportedDevice(
            f"device {spec!r}: mode=async runs on the real clock; leave clock=virtual out or take mode=inline"
        )
    return wanted


def _options(spec: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, text in _pairs(spec, query):
        if key in options:
            raise UnsupportedDevice(f"device {spec!r}: {key} is given twice; give it once")
        options[key] = _option(spec, key, text)
    return options


def _pairs(spec: str, query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True)
    except ValueError as error:
        raise UnsupportedDevice(f"device {spec!r}: these are no options: {error}") from error


def _option(spec: str, key: str, text: str) -> Any:
    if key == "seed":
        if not text.isdecimal() or len(text) > SEED_DIGITS:
            raise UnsupportedDevice(
                f"device {spec!r}: seed={text!r} is not a whole number of up to {SEED_DIGITS} digits"
            )
        return int(text)
    if key not in _CHOICES:
        raise UnsupportedDevice(
            f"device {spec!r}: unknown option {key!r}; known: seed, {', '.join(_CHOICES)}"
        )
    if text not in _CHOICES[key]:
        raise UnsupportedDevice(f"device {spec!r}: {key}={text!r} is not one of {', '.join(_CHOICES[key])}")
    return _CHOICES[key][text]
