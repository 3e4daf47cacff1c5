"""Pictures to input tensors, as the package's layout says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringfence.package.format import InputLayout

if TYPE_CHECKING:
    from PIL.Image import Image


def to_input(layout: InputLayout, picture: Image) -> npt.NDArray[np.float32]:
    """Return ``picture`` as the input tensor: one picture, resized (bilinear), ``(pixel / 255 - mean) /
    std``.

    The shape is (1, channels, height, width) or (1, height, width, channels), the channels in the layout's
    order.
    """
    from PIL.Image import Resampling

    mode = "L" if layout.channels == "L" else "RGB"
    resized = picture.convert(mode).resize((layout.width, layout.height), Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32).reshape(layout.height, layout.width, len(layout.channels)) / 255
    if layout.channels == "BGR":
        pixels = pixels[..., ::-1]
    pixels = (pixels - np.array(layout.mean, np.float32)) / np.array(layout.std, np.float32)
    tensor = pixels if layout.axes == "NHWC" else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(tensor[None], np.float32)
