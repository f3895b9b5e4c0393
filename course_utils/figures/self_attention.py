"""Self-attention in pictures: a word that looks at its sentence, masks, and how a width is cut into heads."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.figures.base import INK, PALETTE, arrow, box, canvas, readable_on, shade, shown

QUERY, KEY, VALUE = "#fde3cf", "#d9ead9", "#dde8f3"  # pale vermilion, green and blue, each with its letter
DRAWN = 8  # more words than this do not fit into the diagram
LARGEST = 16  # more rows or columns than this cannot be read in a mask


@shown
def self_attention_diagram(
    weights: Float[np.ndarray, " words"], words: Sequence[str], asking: int
) -> tuple[Figure, str]:
    """One word of a sentence asks all words of the sentence. Arrows are as thick as the weights.

    weights: of the word `asking` (counted from 0) over all words, summing to 1.

    Raises ValueError where weights and words differ in number, or are more than 8.
    """
    alpha = np.asarray(weights, float)
    if alpha.shape != (len(words),) or not 0 < len(words) <= DRAWN or not 0 <= asking < len(words):
        raise ValueError(
            f"weights have the shape {alpha.shape} for {len(words)} words and asking is {asking}; give one "
            f"weight a word, at most {DRAWN}, and the place of one of them"
        )
    step = 2.3
    figure, axes = canvas(step * len(words) + 2.7, 5.6)
    out = (asking + 0.5) * step + 0.2
    for j, (weight, word) in enumerate(zip(alpha, words, strict=True)):
        x = (j + 0.5) * step + 0.2
        axes.text(
            x, 0.25, word, ha="center", va="center", fontsize=13, weight="bold" if j == asking else None
        )
        axes.plot([x, x], [0.5, 0.8], color="#999999", lw=1.4)
        for place, (letter, colour) in enumerate((("q", QUERY), ("k", KEY), ("v", VALUE))):
            pale = letter == "q" and j != asking
            text = f"${letter}_{{{j + 1}}}$"
            box(axes, x - 0.9 + 0.62 * place, 0.8, 0.56, 0.5, text, colour="#f6f6f6" if pale else colour)
        box(axes, x - 0.42, 2.35, 0.84, 0.52, f"{weight:.2f}", colour=shade(weight))
        axes.plot([x, x], [1.32, 2.33], color="#999999", lw=1.2, zorder=0)  # from the key
        thickness = 0.7 + 11 * weight
        axes.plot([x + 0.62, x + 0.62], [1.32, 3.1], color=PALETTE[0], lw=thickness, solid_capstyle="butt")
        arrow(axes, (x + 0.62, 3.08), (out + (x - out) * 0.25, 4.0), thickness, PALETTE[0])
    axes.plot([out - 0.62, out - 0.62], [1.32, 1.8], color=PALETTE[1], lw=2)
    ends = [0.5 * step + 0.2, (len(words) - 0.5) * step + 0.2]
    axes.plot([min(ends[0], out - 0.62), ends[1]], [1.8, 1.8], color=PALETTE[1], lw=2)
    for j in range(len(words)):
        x = (j + 0.5) * step + 0.2
        arrow(axes, (x, 1.8), (x, 2.33), 1.2, PALETTE[1])
    box(
        axes,
        out - 1.1,
        4.02,
        2.2,
        0.62,
        f"$\\sum_j \\alpha_j v_j$ for “{words[asking]}”",
        colour=shade(0.2),
        size=11,
    )
    arrow(axes, (out, 4.66), (out, 5.1), 2)
    axes.text(out, 5.3, "what the next layer reads here", ha="center", va="center", fontsize=11)
    right = step * len(words) + 0.35
    for height, text in (
        (0.25, "words"),
        (1.05, "three projections"),
        (2.6, "weights: softmax\nof query · key"),
        (4.3, "weighted sum\nof the values"),
    ):
        axes.text(right, height, text, va="center", fontsize=11.5, color="#555555")
    said = ", ".join(f"“{word}” {weight:.2f}" for word, weight in zip(words, alpha, strict=True))
    alt = (
        f"Diagram of self-attention. Each of {len(words)} words gives a query, a key and a value. The query "
        f"of “{words[asking]}” meets the keys of all words, its own too, which gives the weights {said}. "
        "Arrows as thick as the weights lead from the values to their weighted sum, above the same word."
    )
    return figure, alt


@shown
def mask_grids(
    masks: Mapping[str, Bool[np.ndarray, "target source"]],
    source: Sequence[str],
    target: Sequence[str] | None = None,
) -> tuple[Figure, str]:
    """Boolean masks side by side: a dot on blue where a row may attend to a column, white where it may not.

    masks: {title: (target, source)}, True = may attend. target: the words of the rows, or the source's.

    Raises ValueError for no mask, one that is not boolean, or one that does not fit the words (at most 16).
    """
    target = source if target is None else target
    masks = {name: np.asarray(mask) for name, mask in masks.items()}
    if not masks:
        raise ValueError("there is no mask to draw: give at least one")
    for name, mask in masks.items():
        if mask.dtype != bool or mask.shape != (len(target), len(source)) or max(mask.shape) > LARGEST:
            raise ValueError(
                f"mask {name!r} is {mask.dtype} of shape {mask.shape}; a boolean one of "
                f"{(len(target), len(source))} is wanted, and at most {LARGEST} rows and columns"
            )
    cell = 0.42
    width = len(masks) * (cell * len(source) + 1.5) + 0.3
    figure = Figure(figsize=(width, cell * len(target) + 1.7), layout="constrained")
    for axes, (name, mask) in zip(
        figure.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True
    ):
        _draw_mask(axes, mask, source, target)
        axes.set_title(name, fontsize=12, pad=8)
    said = []
    for name, mask in masks.items():
        rows = "; ".join(
            f"{word}: {_listed([s for s, seen in zip(source, row, strict=True) if seen])}"
            for word, row in zip(target, mask, strict=True)
        )
        said.append(f"{name}. What each row may attend to: {rows}.")
    return figure, f"{len(masks)} attention masks, rows ask and columns are asked. " + " ".join(said)


@shown
def heads_by_reshape(words: Sequence[str], width: int, heads: int) -> tuple[Figure, str]:
    """Which numbers each head gets: cut by columns (right), and by a reshape without a transpose (wrong).

    Raises ValueError where the width does not divide into the heads.
    """
    if width % heads:
        raise ValueError(f"a width of {width} does not divide into {heads} heads")
    size = (len(words), width)
    by_column = np.broadcast_to(np.arange(width) // (width // heads), size)
    by_row = np.arange(np.prod(size)).reshape(heads, -1)
    by_reshape = np.zeros(size, int)
    for head, numbers in enumerate(by_row):
        by_reshape.flat[numbers] = head
    panels = {"reshape, then transpose (right)": by_column, "one reshape (wrong)": by_reshape}
    figure = Figure(figsize=(2 * (0.55 * width + 1.6), 0.5 * len(words) + 1.2), layout="constrained")
    for axes, (title, owner) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        _draw_owners(axes, owner, words)
        axes.set_title(title, fontsize=12, pad=8)
    first = ", ".join(words[row] for row in range(len(words)) if (by_reshape[row] == 0).any())
    alt = (
        f"Two tables of {len(words)} words with {width} numbers each, coloured and lettered by the head that "
        f"gets the number. Right: head A has the first {width // heads} columns of every word, the next head "
        f"the next. Wrong: head A has the first numbers in reading order, which are of {first} alone."
    )
    return figure, alt


def _draw_mask(axes: Axes, mask: np.ndarray, source: Sequence[str], target: Sequence[str]) -> None:
    for (t, s), seen in np.ndenumerate(mask):
        colour = shade(0.55) if seen else "#ffffff"
        axes.add_patch(Rectangle((s - 0.5, t - 0.5), 1, 1, facecolor=colour, edgecolor="#cccccc", lw=0.8))
        if seen:
            axes.plot(s, t, "o", color=readable_on(colour), markersize=5)
    _word_axes(axes, source, target)


def _draw_owners(axes: Axes, owner: np.ndarray, words: Sequence[str]) -> None:
    for (row, column), head in np.ndenumerate(owner):
        colour = PALETTE[(0, 4, 2, 3)[head % 4]]
        axes.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="#ffffff", lw=1.5)
        )
        axes.text(column, row, chr(ord("A") + head), ha="center", va="center", color=readable_on(colour))
    _word_axes(axes, [str(column) for column in range(owner.shape[1])], words)


def _word_axes(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    axes.set(xlim=(-0.55, len(columns) - 0.45), ylim=(len(rows) - 0.45, -0.55), aspect="equal")
    short = max(map(len, columns)) <= 3
    slanted = {} if short else {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(columns)), columns, fontsize=10.5, **slanted)
    axes.set_yticks(range(len(rows)), rows, fontsize=10.5)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, colors=INK)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) if words else "nothing"
