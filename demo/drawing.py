"""The demonstration's picture: the page with the regions that were found."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from demo.regions import Points, Region

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

ENLARGE = 3
OURS, THEIRS, INK, PAPER = (228, 87, 20), (38, 98, 200), (30, 30, 30), (250, 248, 240)
CAPTION_HEIGHT, MARGIN, GUTTER = 74, 12, 40


def draw(
    page: Image.Image, ours: Sequence[Region], theirs: Sequence[Region], caption: Sequence[str], device: str
) -> Image.Image:
    """Return the enlarged page with our regions and, thinner, the reference's; a caption below.

    Regions are in the page's coordinates. Their numbers stand in the gutter on the left. ``device`` is the
    legend of ours.
    """
    width, height = page.width * ENLARGE, page.height * ENLARGE
    canvas = Image.new("RGB", (GUTTER + width, height + CAPTION_HEIGHT), PAPER)
    canvas.paste(_outlined(page, ours, theirs), (GUTTER, 0))
    pen = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(16)
    for number, region in enumerate(ours):
        left = region.corners[region.corners[:, 0].argsort()[:2]]
        y = float(left[:, 1].mean()) * ENLARGE
        pen.text((GUTTER / 2, y), str(number + 1), fill=OURS, font=font, anchor="mm")
    for line, text in enumerate(caption):
        pen.text((GUTTER, height + MARGIN + 22 * line), text, fill=INK, font=font)
    _legend(pen, (GUTTER + width, height), font, device)
    return canvas


def _outlined(page: Image.Image, ours: Sequence[Region], theirs: Sequence[Region]) -> Image.Image:
    size = (page.width * ENLARGE, page.height * ENLARGE)
    enlarged = page.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(enlarged)
    for region in ours:
        _outline(pen, region.corners, OURS, 5)
    for region in theirs:
        _outline(pen, region.corners, THEIRS, 1)
    return enlarged


def _outline(pen: ImageDraw.ImageDraw, corners: Points, colour: tuple[int, int, int], width: int) -> None:
    points = [(float(x) * ENLARGE, float(y) * ENLARGE) for x, y in corners]
    pen.line([*points, points[0], points[1]], fill=colour, width=width, joint="curve")


def _legend(pen: ImageDraw.ImageDraw, corner: tuple[int, int], font: Font, device: str) -> None:
    width, height = corner
    entries = ((device, OURS, 5), ("onnxruntime", THEIRS, 1))
    for line, (text, colour, thickness) in enumerate(entries):
        y = height + MARGIN + 22 * line
        pen.line([(width - 170, y + 10), (width - 130, y + 10)], fill=colour, width=thickness)
        pen.text((width - 120, y), text, fill=INK, font=font)
