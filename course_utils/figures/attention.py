"""Attention in pictures: matrices, the row of one word, and a diagram of one step."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.figures.base import GOLD, PALETTE, arrow, box, canvas, readable_on, shade, shown

MAX_WORDS = 60  # more words than this cannot be read in one picture
DIAGRAM_WORDS = 12
END = "<eos>"


@shown
def attention_matrix(
    weights,
    source: Sequence[str],
    target: Sequence[str],
    *,
    gold: Iterable[tuple[int, int]] = (),
    possible: Iterable[tuple[int, int]] = (),
    title: str = "",
) -> tuple[Figure, str]:
    """One attention matrix: a row for each target word, a column for each source word, darker is more.

    weights: (target, source), each row summing to 1, or None to draw the gold links alone. One row or column
    more than there are words is the end token's. gold, possible: links (source index, target index), outlined
    with a solid and a dashed line. At most 60 words a side are drawn, and the picture says where it was cut.

    Raises ValueError when the weights do not fit the words or a link lies outside them.
    """
    panel = {"weights": weights, "source": source, "target": target, "gold": gold, "possible": possible}
    return attention_matrices.build([{**panel, "title": title}])


@shown
def attention_matrices(panels: Sequence[Mapping], *, title: str = "") -> tuple[Figure, str]:
    """Several attention matrices in one figure: each panel is a dict of what `attention_matrix` takes.

    They stand side by side, in several rows where they would become too small to read.

    Raises ValueError as `attention_matrix` does, and for no panels.
    """
    if not panels:
        raise ValueError("there is no matrix to draw: give at least one panel")
    matrices = [_Matrix(**panel) for panel in panels]
    figure, grid, cell = _matrix_grid(matrices, columns=len(matrices))
    all_axes = grid.ravel()
    for axes, matrix in zip(all_axes, matrices, strict=False):
        matrix.draw(axes, cell)
    for axes in all_axes[len(matrices) :]:
        axes.set_axis_off()
    if _same_rows(matrices):
        for axes in grid[:, 1:].ravel():
            axes.tick_params(labelleft=False)
    if any(matrix.weights is not None for matrix in matrices):
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, 1), "Blues"),
            ax=list(all_axes),
            shrink=0.8,
            aspect=4.5 * figure.get_figheight(),
            pad=0.02,
        )
        bar.set_label("attention weight")
        bar.outline.set_visible(False)
    if title:
        figure.suptitle(title, fontsize=14, fontweight="bold")
        figure.get_layout_engine().set(h_pad=0.1)
    opening = f"{title}. " if title else ""
    if len(matrices) == 1:
        return figure, opening + matrices[0].alt(rows=15)
    return figure, opening + " ".join(f"Panel {i}: {m.alt(rows=6)}" for i, m in enumerate(matrices, 1))


def _matrix_grid(matrices: list["_Matrix"], columns: int) -> tuple[Figure, np.ndarray, float]:
    """A figure, its grid of axes and the size of a cell in inches: as many in a row as stay readable."""
    width = max(len(matrix.source) for matrix in matrices)
    height = max(len(matrix.target) for matrix in matrices)
    top = 0.105 * max(len(word) for matrix in matrices for word in matrix.source) + 0.3
    left = 0.105 * max(len(word) for matrix in matrices for word in matrix.target) + 0.3
    left *= 1 if _same_rows(matrices) else columns
    cell = min(0.6, 11 / height, (11.5 - left) / columns / width)
    if cell < 0.24 and columns > 1:
        return _matrix_grid(matrices, columns - 1)
    rows = -(-len(matrices) // columns)
    size = (columns * width * cell + left + 1, rows * (height * cell + top + 0.6))
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False), cell


def _same_rows(matrices: list["_Matrix"]) -> bool:
    return all(matrix.target == matrices[0].target for matrix in matrices)


class _Matrix:
    """One attention matrix, checked and cut to what can be read."""

    def __init__(self, weights, source, target, gold=(), possible=(), title=""):
        shape = (len(target), len(source)) if weights is None else np.shape(weights)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"weights must be (target, source), neither empty; this array has shape {shape}")
        rows, columns = shape
        gold, possible = set(gold), set(possible)
        target, source = _with_end(target, rows, "target", shape), _with_end(source, columns, "source", shape)
        for s, t in gold | possible:
            if not (0 <= s < columns and 0 <= t < rows):
                raise ValueError(
                    f"link (source {s}, target {t}) lies outside {columns} source and {rows} target words; "
                    "links are (source index, target index), counted from 0"
                )
        self.title = title
        self.source, self.target = source[:MAX_WORDS], target[:MAX_WORDS]
        self.weights = None if weights is None else np.asarray(weights, float)[:MAX_WORDS, :MAX_WORDS]
        self.gold = {(s, t) for s, t in gold if max(s, t) < MAX_WORDS}
        self.possible = {(s, t) for s, t in possible if max(s, t) < MAX_WORDS} - self.gold
        self.cut = [
            f"only the first {MAX_WORDS} of {count} {side} words are drawn"
            for side, count in (("source", columns), ("target", rows))
            if count > MAX_WORDS
        ]

    def draw(self, axes: Axes, cell: float) -> None:
        """Cells of `cell` inches, words around them, gold links outlined."""
        empty = np.zeros((len(self.target), len(self.source)))
        axes.imshow(empty if self.weights is None else self.weights, cmap="Blues", vmin=0, vmax=1)
        self._write_words(axes, size=float(np.clip(cell * 32, 7, 12)))
        if self.weights is not None and cell > 0.45:
            for (t, s), weight in np.ndenumerate(self.weights):
                if weight >= 0.05:
                    ink = readable_on(shade(weight))
                    axes.text(s, t, f"{weight:.2f}", ha="center", va="center", fontsize=cell * 20, color=ink)
        for links, dashes in ((self.gold, "-"), (self.possible, (0, (3, 2)))):
            filled = self.weights is None and links is self.gold
            look = {"fill": filled, "facecolor": shade(0.6), "edgecolor": GOLD, "linestyle": dashes}
            for s, t in sorted(links):
                outline = Rectangle((s - 0.44, t - 0.44), 0.88, 0.88, **look, linewidth=min(2.6, 6 * cell))
                axes.add_patch(outline)
        axes.set_xlabel("\n".join(self._notes()), fontsize=10.5)

    def _write_words(self, axes: Axes, size: float) -> None:
        rows, columns = len(self.target), len(self.source)
        slanted = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(
            range(columns), self.source, fontsize=size, **(slanted if columns <= 8 else {"rotation": 90})
        )
        axes.set_yticks(range(rows), self.target, fontsize=size)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.tick_params(which="minor", length=0)
        axes.grid(which="minor", color="#dddddd", linewidth=0.8)
        axes.set_title(self.title, pad=10)

    def _notes(self) -> list[str]:
        names = [("solid outline: sure gold link", self.gold), ("dashed: possible link", self.possible)]
        legend = "; ".join(text for text, links in names if links)
        return [legend] * bool(legend) + self.cut

    def alt(self, rows: int) -> str:
        """What is seen, with the largest weight of the first `rows` target words."""
        kind = "Gold alignment" if self.weights is None else "Attention matrix"
        text = f"{self.title}. " if self.title else ""
        text += (
            f"{kind}: {len(self.target)} target words as rows, {len(self.source)} source words as columns. "
        )
        if self.weights is None:
            said = [f"“{self.target[t]}” with “{self.source[s]}”" for s, t in sorted(self.gold)]
            text += "Linked: " + _first(said, 2 * rows)
        else:
            best = self.weights.argmax(1)
            said = [
                f"“{word}” looks most at “{self.source[s]}” ({self.weights[t, s]:.2f})"
                for t, (word, s) in enumerate(zip(self.target, best, strict=True))
            ]
            text += _first(said, rows)
            linked = {t for _, t in self.gold}
            if linked:
                right = sum((int(best[t]), t) in self.gold for t in linked)
                text += (
                    f" The largest weight lies on a sure gold link for {right} of {len(linked)} linked words."
                )
        return text + "".join(f" Note: {note}." for note in self.cut)


def _first(said: list[str], count: int) -> str:
    return "; ".join(said[:count]) + (f"; and {len(said) - count} more" if len(said) > count else "") + "."


def _with_end(words: Sequence[str], count: int, side: str, shape: tuple) -> list[str]:
    words = list(words)
    if count == len(words) + 1:
        words.append(END)
    if count != len(words):
        raise ValueError(
            f"weights of shape {shape} (target, source) do not fit {len(words)} {side} words: "
            f"give {count} words, or {count - 1} and the end token is added"
        )
    return words


@shown
def word_weights(
    weights, source: Sequence[str], word: str, *, entropy: float | None = None, title: str = ""
) -> tuple[Figure, str]:
    """Where one target word looks: a bar for each source word, weights (source,) that sum to 1.

    entropy: of the weights, in bits, written into the picture when given.
    """
    matrix = _Matrix([weights], source, [word])
    heights = matrix.weights[0]
    figure = Figure(figsize=(float(np.clip(0.55 * len(heights) + 1.5, 5, 11)), 3.6), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.bar(range(len(heights)), heights, color=PALETTE[0], width=0.7)
    large = [f"{h:.2f}" if h >= 0.01 and len(heights) <= 20 else "" for h in heights]
    axes.bar_label(bars, large, padding=2, fontsize=11)
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, max(1.0, 1.1 * heights.max()) if heights.max() > 0.7 else 1.2 * heights.max())
    axes.set_xticks(
        range(len(heights)), matrix.source, rotation=0 if len(heights) <= 6 else 60,
        ha="center" if len(heights) <= 6 else "right", rotation_mode="anchor",
    )  # fmt: skip
    axes.set_ylabel("attention weight")
    axes.set_title(title or f"Where “{word}” looks", loc="left")
    bits = "" if entropy is None else f"entropy {entropy:.2f} bits, as {2**entropy:.1f} words of equal weight"
    axes.set_xlabel("\n".join(matrix.cut + [bits] * bool(bits)))
    order = np.argsort(-heights)[:3]
    said = ", ".join(f"“{matrix.source[s]}” {heights[s]:.2f}" for s in order)
    alt = (
        f"{title or f'Where “{word}” looks'}. Bar chart of the attention weights of “{word}” over "
        f"{len(heights)} source words. The largest: {said}; together {heights[order].sum():.2f} of 1."
    )
    return figure, alt + (f" The {bits}." if bits else "") + "".join(f" Note: {note}." for note in matrix.cut)


@shown
def attention_diagram(
    weights,
    source: Sequence[str],
    word: str,
    *,
    previous: str = "",
    scores: Sequence[float] | None = None,
) -> tuple[Figure, str]:
    """One step of attention: scores, softmax, weighted sum. Arrows are as thick as the weights.

    weights: (source,), summing to 1. scores: (source,), written in when given. previous: the word before.
    Draws the first 12 words.
    """
    matrix = _Matrix([weights], source, [word])
    alpha, words = matrix.weights[0][:DIAGRAM_WORDS], matrix.source[:DIAGRAM_WORDS]
    left, step = 2.0, 1.25 if len(words) <= 6 else 1.0
    right = left + len(words) * step
    centre = (left + right) / 2
    figure, axes = canvas(right + 2.3, 5.9)
    for j, (weight, name) in enumerate(zip(alpha, words, strict=True)):
        x = left + (j + 0.5) * step
        score = f"$e_{{t{j + 1}}}$" if scores is None else f"{scores[j]:.1f}"
        axes.text(x, 0.3, name, ha="center", va="center", fontsize=12 if len(name) < 9 else 10)
        box(axes, x - 0.4, 0.67, 0.8, 0.56, f"$h_{{{j + 1}}}$", colour="#eeeeee")
        arrow(axes, (x, 1.25), (x, 1.76), 1, "#999999")
        box(axes, x - 0.32, 1.78, 0.64, 0.54, score, colour="#ffffff")
        arrow(axes, (x, 2.34), (x, 2.76), 1, "#999999")
        box(axes, x - 0.4, 2.78, 0.8, 0.54, f"{weight:.2f}", colour=shade(weight))
        arrow(axes, (x, 3.34), (centre + (x - centre) * 0.2, 4.3), 0.7 + 12 * weight)
    _step_frame(axes, centre, right, word, previous)
    cut = len(matrix.weights[0]) - len(words)
    if cut:
        axes.text(right + 0.15, 3.7, f"{cut} more words\nare not drawn", va="center", fontsize=11)
    said = ", ".join(f"“{name}” {weight:.2f}" for name, weight in zip(words, alpha, strict=True))
    alt = (
        f"Diagram of one step of attention, writing “{word}”. For each of {len(words)} source words "
        f"its encoder state and the decoder state s(t-1) give a score; softmax turns the scores into "
        f"weights: {said}. Arrows as thick as the weights lead to the context, the weighted sum of the "
        f"states; the thickest comes from “{words[int(alpha.argmax())]}”."
    )
    return figure, alt + (f" Note: {cut} more words are not drawn." if cut else "")


def _step_frame(axes: Axes, centre: float, right: float, word: str, previous: str) -> None:
    """What stands around the source words: the decoder state, the context, the names of the rows."""
    heights = (0.3, 0.95, 2.05, 3.05, 4.65)
    names = ("source words", "encoder states", "scores", "softmax: weights", "weighted sum")
    for height, text in zip(heights, names, strict=True):
        axes.text(right + 0.15, height, text, va="center", fontsize=12, color="#555555")
    axes.plot([1.5, right - 0.5], [2.05, 2.05], color="#999999", lw=1.4, ls="--", zorder=0)
    box(axes, 0.15, 1.75, 1.35, 0.6, "$s_{t-1}$", colour="#fde3cf")
    told = "decoder state" + (f"\nafter “{previous}”" if previous else "")
    axes.text(0.82, 1.6, told, ha="center", va="top", fontsize=11, color="#555555")
    box(axes, centre - 1.3, 4.33, 2.6, 0.66, "context $c_t = \\sum_j \\alpha_{tj} h_j$", colour=shade(0.2))
    arrow(axes, (centre, 5.0), (centre, 5.35), 2)
    axes.text(centre, 5.6, f"helps write “{word}”", ha="center", va="center", fontsize=13, fontweight="bold")
