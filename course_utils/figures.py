"""The pictures of the course: built from plain numbers, described in words, shown once.

Every public drawing function shows one output: the picture, with an alt text made from the same numbers. Its
`build` does the drawing alone and returns `(figure, alt)`: `figures.lines.build(...)`.
"""

import base64
import functools
import inspect
import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import combinations

import matplotlib.style
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Polygon, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image  # matplotlib's own reader and writer of images

# The colours of Okabe and Ito (2008), which colour-blind readers tell apart; without yellow, pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GOLD = PALETTE[1]  # the outline of a gold alignment link, in every picture and in the widgets
MAX_WORDS = 60  # more words than this cannot be read in one picture
DIAGRAM_WORDS = 12
END = "<eos>"

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))
_INK = "#222222"
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 12.0,
    "axes.titlesize": 13.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "lines.linewidth": 2.2,
    "lines.markersize": 7.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def style():
    """A context in which matplotlib draws in the style of the course, whatever its settings outside."""
    return matplotlib.style.context(["default", _STYLE])


def png(figure: Figure) -> bytes:
    """The figure as a small PNG on white with a margin, so that it is readable on light and dark pages.

    The same figure gives the same bytes.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    with style():
        figure.savefig(drawn, format="png", dpi=110, bbox_inches="tight", pad_inches=0.15)
    # 256 well-spread colours of its own are enough for a diagram, and make the file a third of the size.
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(small, "PNG", optimize=True)
    return small.getvalue()


def image(figure: Figure, alt: str) -> str:
    """The figure as one HTML <img> that carries its own data and its alt text."""
    data = base64.b64encode(png(figure)).decode("ascii")
    return f'<img alt="{escape(alt)}" style="max-width:100%" src="data:image/png;base64,{data}">'


def show(figure: Figure, alt: str) -> None:
    """Show the figure in the notebook, once, with its alt text; outside IPython nothing happens.

    Raises ValueError for an empty alt text: a reader who cannot see the picture must be told what it shows.
    """
    if not alt.strip():
        raise ValueError("the alt text is empty: say in words what the picture shows")
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return
    if get_ipython() is not None:
        display({"text/html": image(figure, alt), "text/plain": alt}, raw=True)


def _shown(build: Callable[..., tuple[Figure, str]]) -> Callable[..., None]:
    """The function that draws in the style of the course and shows what `build` returns.

    It returns None, so that a cell that ends with it shows the picture once.
    """

    @functools.wraps(build)
    def styled(*args, **kwargs):
        with style():
            return build(*args, **kwargs)

    @functools.wraps(build)
    def function(*args, **kwargs):
        show(*styled(*args, **kwargs))

    function.__signature__ = inspect.signature(build).replace(return_annotation=None)
    function.build = styled
    return function


# ---- curves


@_shown
def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    xscale: str = "linear",
    yscale: str = "linear",
) -> tuple[Figure, str]:
    """Curves, each with its own x values: {name: (x, y)}. Labels carry the units.

    xscale and yscale are "linear" or "log".

    Raises ValueError when there is nothing to draw or x and y of a series differ in length.
    """
    series = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in series.items()}
    if not series:
        raise ValueError("there is no curve to draw: give at least one series")
    for name, (x, y) in series.items():
        if x.shape != y.shape or x.ndim != 1 or not len(x):
            raise ValueError(
                f"series {name!r}: x has shape {x.shape} and y {y.shape}; give two lists of one length"
            )
    figure, axes = _axes(xlabel, ylabel, title, xscale, yscale)
    for index, (x, y) in enumerate(series.values()):
        axes.plot(x, y, markevery=max(1, len(x) // 10), **_look(index))
    _plain_log_ticks(axes)
    _label_ends(axes, series)
    return figure, _lines_alt(series, xlabel, ylabel, title, xscale, yscale)


@_shown
def curve(
    x: Sequence[float], series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, **options
) -> tuple[Figure, str]:
    """Curves over the same x values: {name: y}. The options are those of `lines`."""
    return lines.build({name: (x, y) for name, y in series.items()}, xlabel=xlabel, ylabel=ylabel, **options)


@_shown
def quality_by_length(
    series: Mapping[str, Sequence[tuple[float, float, float, float]]],
    *,
    xlabel: str = "length of the source sentence (tokens)",
    ylabel: str = "BLEU (0 to 100)",
    interval: str = "95% interval",
    title: str = "",
) -> tuple[Figure, str]:
    """Quality against sentence length, each point with its interval.

    series: {name: points}; a point is (length, score, low end, high end). Points with a NaN are left out.

    Raises ValueError when an interval ends below its start, or a series has no point.
    """
    table = {name: np.array([*points], float) for name, points in series.items()}
    for name, points in table.items():
        table[name] = points = points.reshape(-1, 4)[np.isfinite(points).reshape(-1, 4).all(1)]
        if not len(points):
            raise ValueError(f"series {name!r} has no point to draw")
        for x, _, low, high in points[points[:, 2] > points[:, 3]]:
            raise ValueError(
                f"series {name!r} at length {x:g}: the interval {low:g} to {high:g} is upside down"
            )
    drawn = {name: (points[:, 0], points[:, 1]) for name, points in table.items()}
    figure, axes = _axes(xlabel, ylabel, title)
    for index, (name, (x, y)) in enumerate(drawn.items()):
        look, low, high = _look(index), table[name][:, 2], table[name][:, 3]
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.vlines(x, low, high, color=look["color"], linewidth=1.4)
        axes.plot([*x, *x], [*low, *high], "_", color=look["color"], markersize=10)
        axes.plot(x, y, **look)
    axes.set_ylim(bottom=0)
    _label_ends(axes, drawn)
    axes.text(1, -0.2, f"bars and bands: {interval}", transform=axes.transAxes, ha="right", va="top", size=10)
    alt = _lines_alt(drawn, xlabel, ylabel, title)
    for name, points in table.items():
        widest = points[np.argmax(points[:, 3] - points[:, 2])]
        alt += f" The widest {interval} of {name}: {_n(widest[2])} to {_n(widest[3])}, at {_n(widest[0])}."
    return figure, alt


def _axes(xlabel, ylabel, title, xscale="linear", yscale="linear") -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.set_title(title, loc="left")
    return figure, axes


def _plain_log_ticks(axes: Axes) -> None:
    """0.3 rather than 3 x 10^-1 on a log axis, and more of them where the range is short."""
    axes.get_xlim(), axes.get_ylim()  # settles the ranges, which matplotlib leaves open until it must know
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: _n(value)))
            axis.set_minor_formatter(NullFormatter())


def _look(index: int) -> dict:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index % len(_DASHES)],
    }


def _label_ends(axes: Axes, series: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Write each name beside the end of its curve, moved apart where two would overlap."""
    axes.get_xlim(), axes.get_ylim()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []
    for index, (name, (x, y)) in enumerate(series.items()):
        finite = np.flatnonzero(np.isfinite(y))
        last = finite[-1] if len(finite) else 0
        height = to_axes.transform((x[last], y[last]))[1] if len(finite) else 0.5
        ends.append((float(height), index, name))
    heights = _spread([height for height, _, _ in sorted(ends)], gap=0.09)
    for height, (_, index, name) in zip(heights, sorted(ends), strict=True):
        axes.text(
            1.02,
            height,
            name,
            transform=axes.transAxes,
            va="center",
            color=_look(index)["color"],
            fontweight="bold",
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Rising heights, moved so that neighbours are `gap` apart and all lie within 0 to 1."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else max(height, 0.02))
    ceiling = 0.98
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _lines_alt(series, xlabel, ylabel, title, xscale="linear", yscale="linear") -> str:
    """What a chart of curves shows: axes and ranges, each curve's course, and which lies above which."""
    scale = {"linear": "", "log": " on a log scale"}
    every_x = np.concatenate([x for x, _ in series.values()])
    parts = [
        (f"{title}. " if title else "") + f"Line chart of {ylabel}{scale.get(yscale, '')} against {xlabel}"
        f"{scale.get(xscale, '')}, from {_n(every_x.min())} to {_n(every_x.max())}."
    ]
    parts += [f"{name}: {_course(x, y)}." for name, (x, y) in series.items()]
    if len(series) <= 3:
        parts += [_comparison(*pair, series) for pair in combinations(series, 2)]
    return " ".join(part for part in parts if part)


def _course(x: np.ndarray, y: np.ndarray) -> str:
    if len(x) <= 8:
        return ", ".join(f"{_n(b)} at {_n(a)}" for a, b in zip(x, y, strict=True))
    if not np.isfinite(y).any():
        return "no finite value"
    low, high = np.nanargmin(y), np.nanargmax(y)
    return (
        f"from {_n(y[0])} at {_n(x[0])} to {_n(y[-1])} at {_n(x[-1])}; "
        f"lowest {_n(y[low])} at {_n(x[low])}, highest {_n(y[high])} at {_n(x[high])}"
    )


def _comparison(first: str, second: str, series) -> str:
    shared, at_first, at_second = np.intersect1d(series[first][0], series[second][0], return_indices=True)
    if not len(shared):
        return ""
    gap = series[first][1][at_first] - series[second][1][at_second]
    above, below = int((gap > 0).sum()), int((gap < 0).sum())
    widest = np.nanargmax(abs(gap)) if np.isfinite(gap).any() else 0
    if above == below == 0:
        return f"{first} and {second} are equal at all {len(shared)} shared points."
    upper, lower, count = (first, second, above) if above >= below else (second, first, below)
    return (
        f"{upper} lies above {lower} at {count} of {len(shared)} shared points; "
        f"the widest gap is {_n(abs(gap[widest]))}, at {_n(shared[widest])}."
    )


def _n(value: float) -> str:
    """A number as people write it: three significant digits, no exponent where it is not needed."""
    if not np.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:.3g}"


# ---- attention matrices


def shade(weight: float) -> str:
    """The colour of an attention weight, from white (0) to dark blue (1): one hue, darker means more."""
    return to_hex(colormaps["Blues"](float(np.clip(weight, 0, 1))))


def readable_on(colour: str) -> str:
    """Black or white, whichever stands out more on `colour` (the contrast ratio of WCAG 2)."""
    return "#000000" if contrast(colour, "#000000") >= contrast(colour, "#ffffff") else "#ffffff"


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2, "relative luminance")."""

    def luminance(colour: str) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@_shown
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


@_shown
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


@_shown
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


# ---- diagrams


@_shown
def bottleneck_diagram(
    short: Sequence[str], long: Sequence[str], *, width: int = 256, results: tuple[str, str] | None = None
) -> tuple[Figure, str]:
    """The failure of the fixed vector in one picture: a short and a long sentence through the same vector.

    width: how many numbers the vector holds. results: what came out of each, such as ("BLEU 94", "BLEU 15").
    """
    texts = [textwrap.wrap(" ".join(words), 34) for words in (short, long)]
    heights = [max(1.0, 0.25 * len(text) + 0.35) for text in texts]
    figure, axes = _canvas(11, sum(heights) + 0.9)
    said = []
    for row, words in enumerate((short, long)):
        bottom = 0.1 if row else heights[1] + 0.5
        share = (
            f"{width / len(words):.0f} numbers a word" if len(words) < width else "1 number a word or less"
        )
        result = results[row] if results else ""
        _box(axes, 0.1, bottom, 4.0, heights[row], "\n".join(texts[row]), colour=shade(0.12), size=11)
        _squeeze(axes, bottom, heights[row], len(words), f"{len(words)} words\n{share}")
        middle = bottom + heights[row] / 2
        _box(axes, 8.8, middle - 0.4, 2.1, 0.8, f"decoder\n{result}".strip(), colour=shade(0.12), size=11)
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
    axes.add_patch(Rectangle((5.7, middle - 0.5), 0.55, 1, fill=False, edgecolor=_INK, linewidth=1.4))
    axes.text(6.4, middle, text, ha="left", va="center", fontsize=11)
    _arrow(axes, (8.25, middle), (8.7, middle), 2)


@_shown
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
    figure, axes = _canvas(right + 2.3, 5.9)
    for j, (weight, name) in enumerate(zip(alpha, words, strict=True)):
        x = left + (j + 0.5) * step
        score = f"$e_{{t{j + 1}}}$" if scores is None else f"{scores[j]:.1f}"
        axes.text(x, 0.3, name, ha="center", va="center", fontsize=12 if len(name) < 9 else 10)
        _box(axes, x - 0.4, 0.67, 0.8, 0.56, f"$h_{{{j + 1}}}$", colour="#eeeeee")
        _arrow(axes, (x, 1.25), (x, 1.76), 1, "#999999")
        _box(axes, x - 0.32, 1.78, 0.64, 0.54, score, colour="#ffffff")
        _arrow(axes, (x, 2.34), (x, 2.76), 1, "#999999")
        _box(axes, x - 0.4, 2.78, 0.8, 0.54, f"{weight:.2f}", colour=shade(weight))
        _arrow(axes, (x, 3.34), (centre + (x - centre) * 0.2, 4.3), 0.7 + 12 * weight)
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
    _box(axes, 0.15, 1.75, 1.35, 0.6, "$s_{t-1}$", colour="#fde3cf")
    told = "decoder state" + (f"\nafter “{previous}”" if previous else "")
    axes.text(0.82, 1.6, told, ha="center", va="top", fontsize=11, color="#555555")
    _box(axes, centre - 1.3, 4.33, 2.6, 0.66, "context $c_t = \\sum_j \\alpha_{tj} h_j$", colour=shade(0.2))
    _arrow(axes, (centre, 5.0), (centre, 5.35), 2)
    axes.text(centre, 5.6, f"helps write “{word}”", ha="center", va="center", fontsize=13, fontweight="bold")


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A blank sheet measured in inches."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return figure, axes


def _box(axes: Axes, x, y, width, height, text, *, colour, size=13) -> None:
    shape = FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=0.1", fc=colour, ec=_INK, lw=1.2)
    axes.add_patch(shape)
    middle = (x + width / 2, y + height / 2)
    axes.text(
        *middle, text, ha="center", va="center", fontsize=size, color=readable_on(colour), linespacing=1.35
    )


def _arrow(axes: Axes, start, end, width: float, colour: str = PALETTE[0]) -> None:
    """An arrow whose line is `width` points thick."""
    shape = f"simple,tail_width={width},head_width={width + 6},head_length={min(6 + width, 12)}"
    arrow = FancyArrowPatch(start, end, arrowstyle=shape, shrinkA=0, shrinkB=0, color=colour, lw=0)
    axes.add_patch(arrow)
