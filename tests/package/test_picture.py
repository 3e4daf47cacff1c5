"""Pictures become input tensors as the package's layout says."""

import numpy as np
import pytest
from PIL import Image

from ringfence.package import InputLayout
from ringfence.package.picture import to_input


def layout(**fields: object) -> InputLayout:
    values = {"axes": "NCHW", "channels": "RGB", "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)} | fields
    return InputLayout(input="x", height=2, width=3, **values)


@pytest.fixture
def picture() -> Image.Image:
    return Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10)


def test_channels_come_first_in_nchw(picture):
    tensor = to_input(layout(), picture)
    assert tensor.shape == (1, 3, 2, 3)
    assert tensor.dtype == np.float32
    assert np.allclose(tensor[0].transpose(1, 2, 0) * 255, np.asarray(picture))


def test_channels_come_last_in_nhwc(picture):
    tensor = to_input(layout(axes="NHWC"), picture)
    assert np.allclose(tensor[0] * 255, np.asarray(picture))


def test_mean_and_std_are_per_channel_in_the_order_of_the_layout(picture):
    tensor = to_input(layout(channels="BGR", mean=(0.1, 0.2, 0.3), std=(1, 2, 4)), picture)
    blue = np.asarray(picture)[..., 2] / 255
    assert np.allclose(tensor[0, 0], blue - 0.1)
    red = np.asarray(picture)[..., 0] / 255
    assert np.allclose(tensor[0, 2], (red - 0.3) / 4, atol=1e-6)


def test_grey_models_get_one_channel(picture):
    tensor = to_input(layout(channels="L", mean=(0.5,), std=(0.5,)), picture)
    assert tensor.shape == (1, 1, 2, 3)


def test_pictures_of_other_sizes_and_modes_are_converted():
    tensor = to_input(layout(), Image.new("RGBA", (640, 480), (255, 0, 0, 128)))
    assert tensor.shape == (1, 3, 2, 3)
    assert np.allclose(tensor[0, :, 0, 0], (1, 0, 0))
