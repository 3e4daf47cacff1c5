"""The text form of virtual devices."""

from __future__ import annotations

import pytest

from ringfence.errors import UnsupportedDevice
from ringfence.virtual.specification import VirtualSpec, parse_virtual


def test_a_chip_alone_means_the_defaults() -> None:
    assert parse_virtual("virtual:a630") == VirtualSpec("a630", strict=True, seed=0, coherent=False)


def test_options_are_those_of_a_url() -> None:
    spec = parse_virtual("virtual:a630/kgsl?strict=0&seed=7&mode=async&clock=real&coherent=1")
    assert spec == VirtualSpec("a630", strict=False, seed=7, mode="async", clock="real", coherent=True)


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("kgsl", "virtual:<chip>"),
        ("virtual:a999", "no virtual 'a999'"),
        ("virtual:a630/usb", "through kgsl"),
        ("virtual:a630?fast=1", "unknown option 'fast'"),
        ("virtual:a630?strict=2", "not one of 0, 1"),
        ("virtual:a630?seed=x", "not a whole number"),
        ("virtual:a630?seed=" + 5000 * "1", "not a whole number"),
        ("virtual:a630?seed=1&seed=2", "seed is given twice"),
        ("virtual:a630?strict=1&strict=1", "strict is given twice"),
        ("virtual:a630?mode=async&clock=virtual", "mode=async runs on the real clock"),
    ],
)
def test_what_is_wrong_is_named(spec: str, part: str) -> None:
    with pytest.raises(UnsupportedDevice, match=part):
        parse_virtual(spec)
