"""Text regions from the probability map of a DB text detector, in numpy.

The map gives for each pixel the probability that it lies in the shrunk kernel of a line of text. Connected
components of probable pixels become rectangles of least area, which are then grown by what the training
shrank (Liao et al., "Real-time Scene Text Detection with Differentiable Binarization", 2019, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
"""Points as rows of x, y."""
Vector = Sequence[float] | npt.NDArray[np.float64]

THRESHOLD = 0.3
SCORE_THRESHOLD = 0.5
UNCLIP_RATIO = 1.6
SHORTEST_SIDE = 3.0


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle, as four corners (x, y) in order, and the mean probability of the pixels behind it."""

    corners: Points
    score: float

    def scaled(self, x: float, y: float) -> Region:
        """Return the region in a picture that is ``x`` times wider and ``y`` times higher."""
        return Region(self.corners * (x, y), self.score)


def find_regions(probability: npt.NDArray[Any]) -> list[Region]:
    """Return the regions of a map of shape (height, width), from top to bottom."""
    found = []
    for rows, columns in components(probability > THRESHOLD):
        score = float(probability[rows, columns].mean())
        rectangle = smallest_rectangle(np.stack([columns, rows], axis=1).astype(np.float64) + 0.5)
        if score >= SCORE_THRESHOLD and min(_sides(rectangle)) >= SHORTEST_SIDE:
            found.append(Region(grow(rectangle), score))
    return sorted(found, key=lambda region: (region.corners[:, 1].mean(), region.corners[:, 0].mean()))


def components(mask: npt.NDArray[np.bool_]) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Return rows and columns of each 8-connected component of ``mask``."""
    parents: list[int] = []
    runs: list[tuple[int, int, int]] = []  # row, first column, column after the last
    above = range(0)
    for y, line in enumerate(mask):
        first = len(runs)
        edges = np.flatnonzero(np.diff(line, prepend=False, append=False)).reshape(-1, 2)
        for start, end in edges.tolist():
            parents.append(len(runs))
            for other in above:
                if runs[other][1] <= end and start <= runs[other][2]:
                    parents[_root(parents, other)] = _root(parents, len(runs))
            runs.append((y, start, end))
        above = range(first, len(runs))
    groups: dict[int, list[tuple[int, int, int]]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(_root(parents, index), []).append(run)
    return [_pixels(group) for group in groups.values()]


def _root(parents: list[int], index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = parents[index]
    return index


def _pixels(runs: Sequence[tuple[int, int, int]]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    rows = np.concatenate([np.full(end - start, y) for y, start, end in runs])
    columns = np.concatenate([np.arange(start, end) for _, start, end in runs])
    return rows, columns


def smallest_rectangle(points: Points) -> Points:
    """Return the corners of the rectangle of least area around ``points``: one side lies on their hull."""
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    along = edges[lengths > 0] / lengths[lengths > 0, None]
    if not len(along):
        return np.repeat(hull[:1], 4, axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    u, v = hull @ along.T, hull @ across.T
    best = int(np.argmin(np.ptp(u, axis=0) * np.ptp(v, axis=0)))
    left, right, low, high = u[:, best].min(), u[:, best].max(), v[:, best].min(), v[:, best].max()
    corners = np.array([[left, low], [right, low], [right, high], [left, high]])
    rectangle: Points = corners @ np.stack([along[best], across[best]])
    return rectangle


def convex_hull(points: Points) -> Points:
    """Return the convex hull's corners, in one direction of rotation (Andrew's monotone chain)."""
    ordered = np.unique(points, axis=0)
    if len(ordered) < 3:
        return ordered
    lower, upper = _chain(ordered.tolist()), _chain(ordered[::-1].tolist())
    return np.array(lower[:-1] + upper[:-1])


def _chain(points: list[list[float]]) -> list[list[float]]:
    chain: list[list[float]] = []
    for p in points:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], p) <= 0:
            chain.pop()
        chain.append(p)
    return chain


def _turn(a: Vector, b: Vector, c: Vector) -> float:
    """Return twice the area of the triangle, negative if it turns the other way."""
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def grow(rectangle: Points, ratio: float = UNCLIP_RATIO) -> Points:
    """Return ``rectangle`` with every side moved outwards by area x ratio / perimeter."""
    width, height = _sides(rectangle)
    if not width or not height:
        return rectangle
    distance = width * height * ratio / (2 * (width + height))
    x = (rectangle[1] - rectangle[0]) / width * distance
    y = (rectangle[3] - rectangle[0]) / height * distance
    grown: Points = rectangle + np.stack([-x - y, x - y, x + y, y - x])
    return grown


def _sides(rectangle: Points) -> tuple[float, float]:
    a, b = rectangle[1] - rectangle[0], rectangle[3] - rectangle[0]
    return float(np.hypot(*a)), float(np.hypot(*b))


def iou(a: Points, b: Points) -> float:
    """Return the area of the intersection of two convex polygons over the area of their union."""
    shared = abs(_area(_clip(_positive(a), _positive(b))))
    union = abs(_area(a)) + abs(_area(b)) - shared
    return float(shared / union) if union else 0.0


def _area(polygon: Points) -> float:
    if len(polygon) < 3:
        return 0.0
    x, y = polygon[:, 0], polygon[:, 1]
    return float(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) / 2)


def _positive(polygon: Points) -> Points:
    return polygon if _area(polygon) >= 0 else polygon[::-1]


def _clip(subject: Points, window: Points) -> Points:
    """Cut ``subject`` along every side of ``window`` (Sutherland and Hodgman); both turn the positive way."""
    result = subject
    for a, b in zip(window, np.roll(window, -1, axis=0)):
        result = _cut(result, a, b)
    return result


def _cut(polygon: Points, a: Points, b: Points) -> Points:
    kept = []
    sides = [_turn(a, b, p) for p in polygon]
    for k, p in enumerate(polygon):
        here, before = sides[k], sides[k - 1]
        if here * before < 0:
            kept.append(polygon[k - 1] + (p - polygon[k - 1]) * (before / (before - here)))
        if here >= 0:
            kept.append(p)
    return np.array(kept).reshape(-1, 2)


def best_matches(regions: Sequence[Region], references: Sequence[Region]) -> list[float]:
    """Return the best IoU of each region, then of each reference that is no region's best match.

    So a region too many and one too few both show as a number below 1.
    """
    table = np.array([[iou(r.corners, s.corners) for s in references] for r in regions])
    if not table.size:
        return [0.0] * max(len(regions), len(references))
    missed = set(range(len(references))) - set(table.argmax(axis=1).tolist())
    return [*table.max(axis=1).tolist(), *(float(table[:, k].max()) for k in sorted(missed))]
