"""The text of ``--arg``: what it means for an argument, and what is refused before a device is opened."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ringfence.cli.arguments import labels, parse_argument, value_of
from ringfence.cli.programs import Parameter
from ringfence.errors import LaunchError

FLOATS = Parameter(0, "y", True, "float32", "float32 buffer", 8, written=True)
ANYTHING = Parameter(0, "y", True, None, "float4* buffer", 8, written=True)
SIZES = {"bool": 1, "int8": 1, "uint16": 2, "int32": 4, "uint32": 4, "float16": 2, "float32": 4, "float64": 8}


def scalar(dtype: str | None, size: int = 0) -> Parameter:
    return Parameter(0, "a", False, dtype, dtype or f"{size} bytes", size or SIZES[dtype or ""])


def value(text: str, parameter: Parameter):
    return value_of(parse_argument(text), parameter)


# ----- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("1.5", "float32", 1.5),
        ("1000", "uint32", 1000),
        ("-3", "int8", -3),
        ("0x10", "uint16", 16),
        ("2", "float64", 2.0),
        ("1e3", "float32", 1000.0),
        ("u32:7", "uint32", 7),
        ("float32:7", "float32", 7.0),
        ("true", "bool", True),
        ("0", "bool", False),
        ("-inf", "float32", float("-inf")),
        ("label=5", "int32", 5),
    ],
)
def test_a_number_has_the_type_of_the_argument(text, dtype, expected):
    found = value(text, scalar(dtype))
    assert found == expected and type(found) is type(expected)


def test_nan_is_a_number():
    assert np.isnan(value("nan", scalar("float16")))


@pytest.mark.parametrize("text", ["inf", "Infinity", "f32:+inf"])
def test_only_the_word_gives_infinity(text):
    assert value(text, scalar("float32")) == np.inf


@pytest.mark.parametrize(("text", "expected"), [("f32:1.5", np.float32(1.5)), ("u32:7", np.uint32(7))])
def test_a_number_of_unknown_type_needs_a_type_of_the_right_size(text, expected):
    found = value(text, scalar(None, 4))
    assert found == expected and found.dtype == expected.dtype


@pytest.mark.parametrize(
    ("text", "parameter", "words"),
    [
        ("1.5", scalar("uint32"), "not a whole number"),
        ("1e3", scalar("int32"), "not a whole number"),
        ("5000000000", scalar("uint32"), "cannot hold"),
        ("-1", scalar("uint32"), "cannot hold"),
        ("1e6", scalar("float16"), "cannot hold"),
        ("1e39", scalar("float32"), "cannot hold"),
        ("1e400", scalar("float32"), "cannot hold"),
        ("-1e400", scalar("float64"), "cannot hold"),
        ("f32:1e400", scalar(None, 4), "cannot hold"),
        ("1" + 400 * "0", scalar("float64"), "cannot hold"),
        ("2", scalar("bool"), "truth value"),
        ("f32:1", scalar("uint32"), "wants uint32, not float32"),
        ("1.5", scalar(None, 4), "f32:1.5"),
        ("f64:1", scalar(None, 4), "has 4 bytes, a float64 has 8"),
        ("zeros:f32:4", scalar("float32"), "no buffer"),
        ("@in.npy", scalar("float32"), "no buffer"),
        ("1.5", FLOATS, "is a buffer"),
    ],
)
def test_numbers_that_do_not_fit(text, parameter, words):
    with pytest.raises(LaunchError, match=words) as error:
        value(text, parameter)
    assert text in str(error.value)


# ----- buffers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zeros:f32:6", np.zeros(6, np.float32)),
        ("zeros:2x3", np.zeros((2, 3), np.float32)),
        ("y=ones:f32:2x3", np.ones((2, 3), np.float32)),
        ("arange:6", np.arange(6, dtype=np.float32)),
        ("arange:float32:2x3", np.arange(6, dtype=np.float32).reshape(2, 3)),
    ],
)
def test_a_buffer_is_made_up(text, expected):
    found = value(text, FLOATS)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["i8", "u64", "f16", "bool"])
def test_random_numbers_follow_the_seed_and_have_the_type(dtype):
    one, again, other = (value(f"random:{dtype}:64x2{seed}", ANYTHING) for seed in ("", ":0", ":1"))
    np.testing.assert_array_equal(one, again)
    assert one.shape == (64, 2) and one.dtype == value(f"zeros:{dtype}:1", ANYTHING).dtype
    assert (one != other).any() and one.min() != one.max()


def test_counting_beyond_a_type_wraps():
    assert value("arange:u8:300", ANYTHING)[256] == 0


def test_a_file_is_a_buffer(tmp_path):
    array = np.random.default_rng(1).random((3, 4)).astype(np.float32)
    np.save(tmp_path / "in.npy", np.asfortranarray(array))
    found = value(f"x=@{tmp_path / 'in.npy'}", FLOATS)
    np.testing.assert_array_equal(found, array)
    assert found.flags.c_contiguous


def test_a_file_is_a_structure_that_is_given_by_value(tmp_path):
    array = np.array([1, 2, 3], np.float32)
    np.save(tmp_path / "in.npy", array)
    assert value(f"@{tmp_path / 'in.npy'}", scalar(None, 12)) == array.tobytes()


@pytest.mark.parametrize(
    ("text", "parameter", "words"),
    [
        ("zeros:i32:4", FLOATS, "holds float32, this is int32"),
        ("zeros:4", ANYTHING, "zeros:f32:SHAPE"),
        ("zeros:f32:65536x65536", FLOATS, "larger than"),
    ],
)
def test_buffers_that_do_not_fit(text, parameter, words):
    with pytest.raises(LaunchError, match=words):
        value(text, parameter)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: np.save(path, np.zeros(3)), "holds float32, this is float64"),
        (lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True), "not a numpy array"),
        (lambda path: path.write_bytes(b"\x93NUMPY\x01"), "not a numpy array"),
        (lambda path: path.write_bytes(b""), "not a numpy array"),
        (lambda path: None, "argument 0 'y': .*in.npy cannot be read: No such file"),
        (lambda path: path.mkdir(), "argument 0 'y': .*in.npy cannot be read: Is a directory"),
        (lambda path: np.savez(path.open("wb"), a=np.zeros(3)), "archive"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, make, words):
    path = tmp_path / "in.npy"
    make(path)
    with pytest.raises(LaunchError, match=words):
        value(f"@{path}", FLOATS)


def test_bytes_in_the_other_order_are_refused(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(3, ">f4"))
    with pytest.raises(LaunchError, match=">f4"):
        value(f"@{tmp_path / 'in.npy'}", ANYTHING)


# ----- syntax ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "y=",
        "@",
        "abc",
        "f33:1",
        "f32:",
        "f32:abc",
        "f32:1:2",
        "zeros",
        "zeros:f32",
        "zeros:f32:",
        "zeros:f32:4x",
        "zeros:f32:-4",
        "zeros:f32:0",
        "zeros:f32:4:5",
        "random:f32:4:x",
        "random:f32:4:5:6",
        "random:f32:4:" + 5000 * "1",
        "zeros:f32:" + 5000 * "1",
        "1..5",
    ],
)
def test_bad_syntax_shows_what_is_expected(text):
    with pytest.raises(LaunchError, match="zeros:f32:1024") as error:
        parse_argument(text)
    assert "\n" not in str(error.value) and "u32:1000" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("", r"^--arg '': '' is not a number"), ("=zeros:4", r"^--arg =zeros:4: '' is no label")],
)
def test_what_is_empty_is_shown(text, words):
    with pytest.raises(LaunchError, match=words):
        parse_argument(text)


@pytest.mark.parametrize("label", ["", "''", "a b", "1st", "größe"])
def test_a_label_that_is_none_is_named(label):
    with pytest.raises(LaunchError, match=f"{re.escape(repr(label))} is no label"):
        parse_argument(f"{label}=zeros:4")


# ----- labels ---------------------------------------------------------------------------------------

PARAMETERS = (
    FLOATS,
    Parameter(1, "", False, "float32", "float32", 4),
    Parameter(2, "n", False, "int32", "", 4),
)


def test_arguments_are_called_by_label_then_by_the_kernels_name_then_by_number():
    given = [parse_argument(text) for text in ("result=zeros:4", "1", "2")]
    assert labels(given, PARAMETERS) == ("result", "arg1", "n")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("n=zeros:4", "1", "2"), "'n' is argument 2 of the kernel"),
        (("a=zeros:4", "a=1", "2"), "called 'a' already"),
    ],
)
def test_labels_that_mislead(texts, words):
    with pytest.raises(LaunchError, match=words):
        labels([parse_argument(text) for text in texts], PARAMETERS)
