"""Unmodified clients on virtual devices.

``ringfence shim --device virtual:a630 -- python ...`` (or ``virtual:gfx1100``) starts a program whose file
layer finds a machine behind the device nodes. Nothing of the client is changed on disk: when one of its
modules is imported, the few names through which it reaches the operating system are replaced in that process.
tinygrad is the client that is known (:mod:`ringfence.virtual.shim.tinygrad`).

In one process, and without a child: call :func:`install` before tinygrad is imported. Importing this module
is cheap; a machine starts when a device node is opened.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ringfence.virtual.shim.hook import install_hooks

if TYPE_CHECKING:
    from ringfence.virtual.shim.session import Session

VARIABLE = "RINGFENCE_SHIM"  # the device spec; what install() takes as an argument
COUNT_VARIABLE = "RINGFENCE_SHIM_COUNT"
REPORT_VARIABLE = "RINGFENCE_SHIM_REPORT"

_session: Session | None = None  # a process has one file layer, so it can have one shim


def install(device: str = "virtual:a630", *, count: int = 1, report: str | None = None) -> Session:
    """Put ``count`` virtual devices under clients that this process imports from now on.

    ``device`` is ``virtual:<chip>[?options]``: ``strict`` and ``seed`` as for :func:`ringfence.open`, and
    ``coherent=1``: imported CPU memory needs no cache maintenance (it never does behind KFD). The machine
    runs in a thread of its own, on the real clock. ``report`` names a file to which a line of JSON is
    appended at exit.

    :class:`~ringfence.errors.UnsupportedDevice` if there is no such device,
    :class:`~ringfence.errors.PortError` if the report cannot be written, :class:`RuntimeError` if a client
    was imported already, or the shim is installed.
    """
    global _session
    from ringfence.virtual.shim import tinygrad
    from ringfence.virtual.shim.session import Session

    if _session is not None:
        raise RuntimeError(f"the shim is installed already, with {_session.device}")
    session = Session(device, count=count, report=report)
    install_hooks(tinygrad.hooks(session))
    _session = session
    return session


def installed() -> Session | None:
    """Return what :func:`install` returned, ``None`` if this process is not under a shim."""
    return _session


def install_from_environment() -> None:
    """Do what the variables ask for that ``ringfence shim`` sets for its child; nothing without them."""
    device = os.environ.get(VARIABLE)
    if device:
        count = int(os.environ.get(COUNT_VARIABLE, "1"))
        install(device, count=count, report=os.environ.get(REPORT_VARIABLE))
