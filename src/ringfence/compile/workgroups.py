"""Work-groups for kernels whose sizes no small number divides.

tinygrad's heuristic splits an axis into groups only where the split is even. A kernel over 10961 elements, a
prime, is launched with one work-item per group, and 63 of 64 lanes do nothing. Such axes are padded here;
work-items beyond the end load and store nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tinygrad.codegen.opt import Opt, OptOps
from tinygrad.codegen.opt.heuristic import hand_coded_optimizations
from tinygrad.codegen.opt.postrange import Scheduler
from tinygrad.codegen.simplify import (
    pm_flatten_range,
    pm_load_collapse,
    pm_simplify_ranges,
    pm_split_ranges,
)
from tinygrad.schedule.rangeify import pm_mops
from tinygrad.uop.ops import AxisType, UOp, graph_rewrite
from tinygrad.uop.symbolic import sym

FEW = 4
"""Work-groups of fewer work-items are enlarged ..."""
MANY = 4096
"""... if there are at least so many of these in all."""
PADDED = 32
"""What the longest axis is padded to a multiple of, and split by."""


def fill_groups(ast: UOp, renderer: Any) -> UOp:
    """Return the kernel with options that fill its work-groups; as it is if they are filled, or chosen."""
    if ast.arg.opts_to_apply is not None:
        return ast
    schedule = hand_coded_optimizations(_scheduler(ast, renderer))
    sizes, axes = schedule.full_shape, schedule.axes_of(AxisType.GLOBAL)
    within = schedule.axes_of(AxisType.LOCAL, AxisType.GROUP_REDUCE, AxisType.WARP)
    group = math.prod(sizes[k] for k in within)
    if group >= FEW or not axes or group * math.prod(sizes[k] for k in axes) < MANY:
        return ast
    longest = max(axes, key=lambda k: sizes[k])
    if sizes[longest] < PADDED:
        return ast
    added = (Opt(OptOps.PADTO, longest, PADDED), Opt(OptOps.LOCAL, longest, PADDED))
    return ast.replace(arg=replace(ast.arg, opts_to_apply=(*schedule.applied_opts, *added)))


def _scheduler(ast: UOp, renderer: Any) -> Scheduler:
    """Return what tinygrad applies options to: the kernel after the rewrites of ``full_rewrite_to_sink``."""
    sink = graph_rewrite(ast, pm_mops, bottom_up=True)
    sink = graph_rewrite(sink, pm_load_collapse)
    sink = graph_rewrite(sink, pm_split_ranges + pm_flatten_range, ctx={})
    sink = graph_rewrite(sink, sym + pm_flatten_range)
    sink = graph_rewrite(sink, pm_flatten_range + pm_simplify_ranges, ctx={})
    schedule = Scheduler(sink, renderer)
    schedule.convert_loop_to_global()
    return schedule
