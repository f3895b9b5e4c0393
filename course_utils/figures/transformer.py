"""The Transformer in pictures: its two stacks, the two places of a norm, and what a cache saves."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from course_utils.figures.base import GOLD, INK, PALETTE, arrow, box, canvas, shade, shown

STREAM = PALETTE[0]  # the path that passes beside every sublayer
SUBLAYER, NORM = "#fde3cf", "#e9e3f0"
PITCH = 1.2  # the height of one sublayer


@shown
def transformer_diagram(layers: int = 2) -> tuple[Figure, str]:
    """Encoder and decoder, one layer of each drawn out, in pre-LN: what reads what, and through which mask.

    layers: how many such layers there are in each stack.
    """
    figure, axes = canvas(10.2, 8.3)
    left, right, bottom = 2.3, 7.5, 1.75
    sublayers = ["self-attention\n(mask: causal)", "attention to the source\n(mask: padding)", "feed-forward"]
    tops = [
        _stack(axes, left, bottom, ["self-attention\n(mask: padding)", "feed-forward"], layers),
        _stack(axes, right, bottom, sublayers, layers),
    ]
    for x, top, name, words in (
        (left, tops[0], "encoder", "source words"),
        (right, tops[1], "decoder", "<bos> and the words so far"),
    ):
        axes.text(x, 0.25, words, ha="center", va="center", fontsize=11.5)
        box(axes, x - 1.3, 0.55, 2.6, 0.5, "embeddings + positions", colour=shade(0.15), size=11)
        arrow(axes, (x, 1.07), (x, bottom), 2, STREAM)
        axes.text(x - 2.1, top + 0.2, name, fontsize=14, fontweight="bold")
        box(axes, x - 0.9, top + 0.4, 1.8, 0.42, "layer norm", colour=NORM, size=11)
        arrow(axes, (x, top), (x, top + 0.4), 2, STREAM)
    # From the top of the encoder to the middle sublayer of the decoder.
    over, into = tops[0] + 1.2, bottom + PITCH + 0.75
    axes.plot([left, left, 4.75, 4.75], [tops[0] + 0.83, over, over, into], color=GOLD, lw=2.4)
    axes.plot([4.75, 5.3], [into, into], color=GOLD, lw=2.4)
    arrow(axes, (5.2, into), (right - 1.92, into), 1.6, GOLD)
    axes.text(3.5, over + 0.18, "keys and values of the source", ha="center", fontsize=11, color="#8a3c00")
    top = tops[1] + 0.82
    arrow(axes, (right, top), (right, top + 0.35), 2, STREAM)
    box(axes, right - 1.3, top + 0.35, 2.6, 0.5, "the embeddings again", colour=shade(0.15), size=11)
    arrow(axes, (right, top + 0.86), (right, top + 1.2), 2, STREAM)
    axes.text(right, top + 1.38, "a score for every word: the next one", ha="center", fontsize=11.5)
    alt = (
        "Diagram of a Transformer in pre-LN. Left, the encoder: words become embeddings and positions; "
        f"then {layers} layers of self-attention (mask: padding) and a feed-forward network, then a layer "
        f"norm. Right, the decoder: the words so far become embeddings and positions, then {layers} layers "
        "of self-attention (mask: causal), attention to the source (mask: padding), a feed-forward network, "
        "then a layer norm and a product with the embeddings, which scores every word. Each sublayer has a "
        "layer norm before it, and a line passes beside it to a plus sign. From the top of the encoder an "
        "arrow brings keys and values to the attention to the source in every layer of the decoder."
    )
    return figure, alt


def _stack(axes: Axes, x: float, bottom: float, sublayers: Sequence[str], layers: int) -> float:
    """One layer in its frame, a line upwards with the sublayers beside it; returns the height of its top."""
    top, side = bottom + PITCH * len(sublayers) + 0.4, x + 1.25
    axes.add_patch(
        Rectangle((x - 2.1, bottom), 3.75, top - bottom, facecolor="#fafafa", edgecolor="#999999", ls="--")
    )
    axes.text(x + 1.72, bottom + 0.05, f"× {layers}", fontsize=13, fontweight="bold")
    low, high = bottom + 0.12, top - 0.15
    axes.plot([x, x, side, side, x, x], [bottom, low, low, high, high, top], color=STREAM, lw=2.6)
    for i, name in enumerate(sublayers):
        low = bottom + 0.2 + i * PITCH
        box(axes, x - 1.9, low + 0.4, 2.6, 0.6, name, colour=SUBLAYER, size=10.5)
        box(axes, x - 1.05, low + 0.02, 0.9, 0.24, "norm", colour=NORM, size=9)
        arrow(axes, (side, low + 0.14), (x - 0.13, low + 0.14), 1, STREAM)
        arrow(axes, (x - 0.6, low + 0.26), (x - 0.6, low + 0.4), 1, STREAM)
        arrow(axes, (x + 0.7, low + 0.7), (side - 0.15, low + 0.7), 1, STREAM)
        _plus(axes, side, low + 0.7)
    return top


def _plus(axes: Axes, x: float, y: float) -> None:
    axes.add_patch(Circle((x, y), 0.14, facecolor="#ffffff", edgecolor=INK, lw=1.2, zorder=3))
    axes.text(x, y - 0.01, "+", ha="center", va="center", fontsize=12, zorder=4)


@shown
def norm_orders_diagram() -> tuple[Figure, str]:
    """Where the norm stands: after the sum (post-LN), or before the sublayer (pre-LN)."""
    figure, axes = canvas(10.6, 3.9)
    for bottom, name, formula in (
        (2.05, "post-LN", "$x \\leftarrow \\mathrm{LN}(x + f(x))$"),
        (0.15, "pre-LN", "$x \\leftarrow x + f(\\mathrm{LN}(x))$"),
    ):
        pre, road = name == "pre-LN", bottom + 1.3
        axes.text(0.1, road + 0.12, name, fontsize=13, fontweight="bold", va="center")
        axes.text(0.1, road - 0.4, formula, fontsize=12, va="center")
        axes.text(2.85, road, "$x$", fontsize=14, ha="right", va="center")
        arrow(axes, (3.0, road), (9.9, road), 2.4, STREAM)
        axes.text(10.0, road, "$x$", fontsize=14, va="center")
        low = road - 0.78
        axes.plot([3.7, 3.7], [road, low], color=STREAM, lw=1.6)
        start = 3.7
        if pre:
            arrow(axes, (start, low), (4.2, low), 1, STREAM)
            box(axes, 4.2, low - 0.22, 0.95, 0.44, "LN", colour=NORM, size=11)
            start = 5.15
        arrow(axes, (start, low), (5.6, low), 1, STREAM)
        box(axes, 5.6, low - 0.25, 1.3, 0.5, "sublayer $f$", colour=SUBLAYER, size=11)
        axes.plot([6.9, 7.6], [low, low], color=STREAM, lw=1.6)
        arrow(axes, (7.6, low), (7.6, road - 0.14), 1, STREAM)
        _plus(axes, 7.6, road)
        if not pre:
            box(axes, 8.3, road - 0.22, 0.95, 0.44, "LN", colour=NORM, size=11)
    alt = (
        "Two diagrams of one residual sublayer. Post-LN: x runs along a line; a branch goes through the "
        "sublayer f and comes back to a plus sign on the line; after it the line itself passes through a "
        "layer norm. Pre-LN: the layer norm stands on the branch, before f, and only the plus sign lies on "
        "the line."
    )
    return figure, alt


@shown
def cache_diagram(words: Sequence[str]) -> tuple[Figure, str]:
    """What a decoder computes to write these words, with and without a cache: one row a step.

    words: what it reads, <bos> first, at most 8.

    Raises ValueError for no words or more than 8.
    """
    if not 1 <= len(words) <= 8:
        raise ValueError(f"{len(words)} words; give 1 to 8")
    count, cell = len(words), 0.82
    width = count * cell
    figure, axes = canvas(2 * width + 2.6, count * 0.5 + 1.9)
    for left, title, cached in ((1.1, "without a cache", False), (1.8 + width, "with a cache", True)):
        top = 0.75 + count * 0.5
        axes.text(left + width / 2, top + 0.85, title, ha="center", fontsize=13, fontweight="bold")
        for j, word in enumerate(words):
            axes.text(left + (j + 0.5) * cell, top + 0.3, word, ha="center", va="center", fontsize=10.5)
        for step in range(count):
            y = top - (step + 1) * 0.5
            if not cached:
                axes.text(left - 0.1, y + 0.25, f"step {step + 1}", ha="right", va="center", fontsize=11)
            for j in range(step + 1):
                kept = cached and j < step
                look = {"facecolor": "#ffffff", "hatch": "///"} if kept else {"facecolor": STREAM}
                place = (left + j * cell + 0.04, y + 0.04)
                axes.add_patch(Rectangle(place, cell - 0.08, 0.42, edgecolor="#777777", lw=1, **look))
        total = count if cached else count * (count + 1) // 2
        axes.text(left + width / 2, 0.42, f"{total} computed", ha="center", va="center", fontsize=12)
    key = "filled: a token's keys, values and states are computed.  hatched: its keys and values are kept"
    axes.text(width + 1.3, 0.12, key, ha="center", va="center", fontsize=10.5, color="#555555")
    alt = (
        f"Two grids, a row for each of {count} steps and a column for each token read: {', '.join(words)}. "
        "Without a cache, every step computes all tokens so far again: a filled triangle, "
        f"{count * (count + 1) // 2} computations. With a cache, each step computes its own token alone, the "
        f"filled diagonal, {count} computations; the keys and values to its left are kept."
    )
    return figure, alt
