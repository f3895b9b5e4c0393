"""Encoder and decoder in pictures."""

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from course_utils.figures.base import INK, PALETTE, arrow, box, canvas, shade, shown


@shown
def bottleneck_diagram(
    short: Sequence[str], long: Sequence[str], *, width: int = 256, results: tuple[str, str] | None = None
) -> tuple[Figure, str]:
    """The failure of the fixed vector in one picture: a short and a long sentence through the same vector.

    width: how many numbers the vector holds. results: what came out of each, such as ("BLEU 94", "BLEU 15").
    """
    texts = [textwrap.wrap(" ".join(words), 34) for words in (short, long)]
    heights = [max(1.0, 0.25 * len(text) + 0.35) for text in texts]
    figure, axes = canvas(11, sum(heights) + 0.9)
    said = []
    for row, words in enumerate((short, long)):
        bottom = 0.1 if row else heights[1] + 0.5
        share = (
            f"{width / len(words):.0f} numbers a word" if len(words) < width else "1 number a word or less"
        )
        result = results[row] if results else ""
        box(axes, 0.1, bottom, 4.0, heights[row], "\n".join(texts[row]), colour=shade(0.12), size=11)
        _squeeze(axes, bottom, heights[row], len(words), f"{len(words)} words\n{share}")
        middle = bottom + heights[row] / 2
        box(axes, 8.8, middle - 0.4, 2.1, 0.8, f"decoder\n{result}".strip(), colour=shade(0.12), size=11)
        said.append(f"{len(words)} words leave {share}" + (f", {result}" if result else ""))
    heading = {"ha": "center", "fontsize": 12, "fontweight": "bold"}
    axes.text(5.97, sum(heights) + 0.62, f"one vector of {width} numbers", **heading)
    alt = (
        f"Diagram: a short and a long sentence each go through an encoder into one vector of {width} "
        f"numbers, the same size for both, and a decoder reads only that vector. {said[0]}; {said[1]}."
    )
    return figure, alt


def _squeeze(axes: Axes, bottom: float, height: float, parts: int, text: str) -> None:
    """From a box of this height into a bar of fixed size, cut into as many parts as there are words."""
    middle = bottom + height / 2
    corners = [(4.2, bottom), (5.6, middle - 0.5), (5.6, middle + 0.5), (4.2, bottom + height)]
    axes.add_patch(Polygon(corners, facecolor="#e8e8e8"))
    axes.text(4.9, middle, "encoder", ha="center", va="center", fontsize=11)
    for part in range(parts):
        colour = PALETTE[0] if part % 2 == 0 else PALETTE[5]
        place = (5.7, middle - 0.5 + part / parts)
        axes.add_patch(Rectangle(place, 0.55, 1 / parts, facecolor=colour))
    axes.add_patch(Rectangle((5.7, middle - 0.5), 0.55, 1, fill=False, edgecolor=INK, linewidth=1.4))
    axes.text(6.4, middle, text, ha="left", va="center", fontsize=11)
    arrow(axes, (8.25, middle), (8.7, middle), 2)
