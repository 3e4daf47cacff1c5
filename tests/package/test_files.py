"""Files that results go to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ringfence.package.files import why_not_writable, write_arrays
from ringfence.package.format import why_no_package


def test_a_new_file_and_one_to_replace_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    for name in ("new", "old"):
        assert why_not_writable(tmp_path / name) == why_no_package(tmp_path / name) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["old"]  # looking leaves nothing behind


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("absent/new", "there is no folder"),
        ("old/new", "there is no folder"),
        (".", "is not a file"),
        ("/dev/null", "is not a file"),
        ("/proc/new", "cannot be written"),
    ],
)
def test_where_no_file_can_be_written(path: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    assert words in why_not_writable(tmp_path / path)
    assert words in why_no_package(tmp_path / path)


def test_arrays_have_any_name_and_go_to_exactly_the_path(tmp_path: Path) -> None:
    arrays = {
        name: np.arange(k + 1, dtype=np.float32) for k, name in enumerate(("file", "a/b", "allow_pickle"))
    }
    arrays["scalar"] = np.array(3)
    write_arrays(tmp_path / "out", arrays)
    with np.load(tmp_path / "out") as found:
        assert found.files == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
