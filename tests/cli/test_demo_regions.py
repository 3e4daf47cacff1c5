"""The demonstration's post-processing: from a probability map to rectangles."""

from __future__ import annotations

import numpy as np
import pytest

from demo.regions import (
    Region,
    best_matches,
    components,
    convex_hull,
    find_regions,
    grow,
    iou,
    smallest_rectangle,
)

SQUARE = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
BESIDE = SQUARE + np.array([1, 0])


def mask_of(text: str) -> np.ndarray:
    return np.array([[c == "#" for c in line] for line in text.split()])


def test_components_join_diagonally_and_around_corners():
    mask = mask_of("#.#..#  .#..#.  #.#...  ......  ..##..")
    assert sorted(len(rows) for rows, _ in components(mask)) == [2, 2, 5]


def test_components_cover_the_mask_exactly():
    mask = np.random.default_rng(0).random((40, 50)) < 0.45
    again = np.zeros_like(mask)
    for rows, columns in components(mask):
        assert not again[rows, columns].any()
        again[rows, columns] = True
    assert (again == mask).all()


def test_arms_that_meet_further_down_are_one_component():
    assert len(components(mask_of("#...#.#  #...#.#  #####.#  ......#  #######"))) == 2


def test_the_hull_drops_inner_points_and_points_on_edges():
    points = np.concatenate([SQUARE, [[1.0, 1.0], [1.0, 0.0]]])
    assert {tuple(p) for p in convex_hull(points)} == {tuple(p) for p in SQUARE}


@pytest.mark.parametrize("degrees", [0, 7, 45, 80, 133])
def test_the_smallest_rectangle_finds_a_turned_rectangle(degrees):
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = np.array([[0, 0], [9, 0], [9, 2], [0, 2.0]]) @ turn + (5, 3)
    inside = np.random.default_rng(1).random((50, 2)) * (9, 2) @ turn + (5, 3)
    assert iou(smallest_rectangle(np.concatenate([corners, inside])), corners) == pytest.approx(1)


@pytest.mark.parametrize("points", [[[3.0, 4.0]], [[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]])
def test_degenerate_points_give_a_rectangle_without_area(points):
    assert iou(smallest_rectangle(np.array(points)), SQUARE) == 0


def test_growing_moves_every_side_by_the_same_distance():
    grown = grow(np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 2.0], [0.0, 2.0]]), ratio=1.2)
    assert np.allclose(grown, [[-1, -1], [11, -1], [11, 3], [-1, 3]])


@pytest.mark.parametrize(
    ("moved", "expected"), [((0, 0), 1.0), ((1, 0), 1 / 3), ((1, 1), 1 / 7), ((2, 0), 0.0), ((5, 5), 0.0)]
)
def test_iou_of_moved_squares(moved, expected):
    assert iou(SQUARE, SQUARE + moved) == pytest.approx(expected)


def test_iou_does_not_depend_on_the_direction_of_the_corners():
    assert iou(SQUARE[::-1], BESIDE) == pytest.approx(1 / 3)


def test_regions_are_found_from_top_to_bottom_and_faint_or_thin_ones_dropped():
    probability = np.zeros((60, 80))
    probability[40:50, 10:70] = 0.9
    probability[10:16, 5:40] = 0.8
    probability[25:30, 5:40] = 0.4  # above the pixel threshold, below the region's
    probability[55, 5:40] = 1.0
    first, second = find_regions(probability)
    assert (first.score, second.score) == (pytest.approx(0.8), pytest.approx(0.9))
    assert first.corners[:, 1].max() < second.corners[:, 1].min()


def test_an_empty_map_has_no_regions():
    assert find_regions(np.zeros((32, 32))) == []


def test_regions_scale_with_the_picture():
    assert (Region(SQUARE, 1.0).scaled(3, 2).corners == SQUARE * (3, 2)).all()


def test_matches_show_a_missing_and_a_superfluous_region():
    here, there, far = Region(SQUARE, 1.0), Region(BESIDE, 1.0), Region(SQUARE + 50, 1.0)
    assert best_matches([here], [here]) == [1.0]
    assert best_matches([here, far], [here]) == [1.0, 0.0]
    assert best_matches([here], [there, far]) == [pytest.approx(1 / 3), 0.0]
    assert best_matches([], [here]) == [0.0]
    assert best_matches([], []) == []
