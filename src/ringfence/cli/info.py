"""``ringfence info``: real and virtual devices, and how far the virtual ones can be trusted."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from rich.table import Table

from ringfence import __version__
from ringfence.cli.extras import EXTRAS, missing
from ringfence.cli.fidelity import FAMILIES, Claim
from ringfence.cli.output import console, print_json, row, table
from ringfence.errors import RingfenceError


def info_command(
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    fidelity: Annotated[
        bool, typer.Option("--fidelity", help="Say what the virtual GPUs implement and what was checked how.")
    ] = False,
) -> None:
    """List real and virtual devices: what was tried, and why something is unavailable."""
    found = report(fidelity)
    if json:
        print_json(found)
        return
    out = console()
    out.print(_device_table(found["devices"]))
    out.print(_software_table(found["software"]))
    if fidelity:
        for family, claims in FAMILIES.items():
            out.print(_fidelity_table(family, claims))
        out.print("Nothing has run on silicon yet.", markup=False)


def report(fidelity: bool = False) -> dict[str, Any]:
    """Return devices and software as plain data. What cannot be examined is an entry."""
    found: dict[str, Any] = {"version": __version__, "devices": _devices(), "software": _software()}
    if fidelity:
        found["fidelity"] = [
            {"family": family, **asdict(claim)} for family, claims in FAMILIES.items() for claim in claims
        ]
    return found


def _devices() -> list[dict[str, Any]]:
    from ringfence.api import discover

    try:
        return [asdict(candidate) for candidate in discover()]
    except (RingfenceError, OSError, ImportError, ValueError) as error:
        return [
            {
                "spec": "",
                "kind": "",
                "available": False,
                "tried": ["look for devices"],
                "detail": "",
                "reason": f"{type(error).__name__}: {error}",
            }
        ]


def _software() -> dict[str, Any]:
    extras = {
        name: {
            "installed": not missing(name),
            "missing": list(missing(name)),
            "versions": {module: _version(module) for module in modules if module not in missing(name)},
        }
        for name, modules in EXTRAS.items()
    }
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "extras": extras,
    }


def _version(module: str) -> str:
    try:
        return version(module)
    except PackageNotFoundError:
        return "of unknown version"


def _device_table(devices: list[dict[str, Any]]) -> Table:
    made = table("devices", "device", "kind", "available", "what was found, or what was tried and why not")
    for device in devices:
        tried = f" (tried: {', '.join(device['tried'])})" if device["tried"] else ""
        words = device["detail"] if device["available"] else f"{device['reason']}{tried}"
        row(made, device["spec"], device["kind"], "yes" if device["available"] else "no", words)
    return made


def _software_table(software: dict[str, Any]) -> Table:
    made = table("software", "what", "state")
    row(made, "ringfence", __version__)
    row(made, "Python", f"{software['python']} on {software['kernel']}, {software['machine']}")
    for name, extra in software["extras"].items():
        versions = ", ".join(f"{k} {v}" for k, v in extra["versions"].items())
        lacks = f"missing: {', '.join(extra['missing'])}; pip install 'ringfence[{name}]'"
        row(made, f"ringfence[{name}]", versions if extra["installed"] else lacks)
    return made


def _fidelity_table(family: str, claims: tuple[Claim, ...]) -> Table:
    name = {"adreno": "Adreno", "amd": "AMD"}[family]
    made = table(
        f"fidelity of virtual {name} GPUs", "subject", "status", "what that means", "checked against"
    )
    for claim in claims:
        row(made, claim.subject, claim.status, claim.text, claim.oracle)
    return made
