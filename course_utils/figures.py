"""The pictures of the course: each is built from plain numbers, says in words what it shows, and is shown once.

Every public drawing function shows one output: the picture, with an alt text made from the same numbers. Its
`build` does the drawing alone and returns `(figure, alt)`: `figures.lines.build(...)`.
"""

import base64
import functools
import inspect
import io
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
from matplotlib.patches import Rectangle

# The colours of Okabe and Ito (2008), told apart by colour-blind readers; their yellow is too pale for a white ground.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GOLD = PALETTE[1]  # the outline of a gold alignment link, in every picture and in the widgets
MAX_WORDS = 60  # more words than this cannot be read in one picture
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
    """The figure as a PNG on white with a margin, readable on light and dark pages. The same figure gives the
    same bytes."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(
            buffer, format="png", dpi=110, bbox_inches="tight", pad_inches=0.15, metadata={"Software": None}
        )
    return buffer.getvalue()


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
    """The function that draws in the style of the course and shows what `build` returns. It returns None, so that
    a cell that ends with it shows the picture once."""

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
    """Curves, each with its own x values: {name: (x, y)}. Labels carry the units; a scale is "linear" or "log".

    Raises ValueError when there is nothing to draw or x and y of a series differ in length.
    """
    series = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in series.items()}
    for name, (x, y) in series.items():
        if x.shape != y.shape or x.ndim != 1 or not len(x):
            raise ValueError(
                f"series {name!r}: x has shape {x.shape} and y {y.shape}; give two lists of one length, not empty"
            )
    figure, axes = _axes(xlabel, ylabel, title, xscale, yscale)
    for index, (name, (x, y)) in enumerate(series.items()):
        axes.plot(x, y, label=name, markevery=max(1, len(x) // 10), **_look(index))
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
    """Quality against sentence length with intervals: {name: [(length, score, low, high), ...]}.

    Raises ValueError when a score lies outside its own interval.
    """
    table = {name: np.asarray(points, float).reshape(-1, 4) for name, points in series.items()}
    for name, points in table.items():
        wrong = (points[:, 1] < points[:, 2]) | (points[:, 1] > points[:, 3])
        if wrong.any():
            x, y, low, high = points[wrong][0]
            raise ValueError(
                f"series {name!r} at length {x:g}: {y:g} lies outside its interval {low:g} to {high:g}"
            )
    figure, axes = _axes(xlabel, ylabel, title)
    for index, (name, points) in enumerate(table.items()):
        x, y, low, high = points.T
        look = _look(index)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.errorbar(x, y, (y - low, high - y), capsize=4, elinewidth=1.4, label=name, **look)
    axes.set_ylim(bottom=0)
    drawn = {name: (points[:, 0], points[:, 1]) for name, points in table.items()}
    _label_ends(axes, drawn)
    axes.text(
        1, -0.2, f"bars and bands: {interval}", transform=axes.transAxes, ha="right", va="top", fontsize=10
    )
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


def _look(index: int) -> dict:
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index % len(_DASHES)],
    }


def _label_ends(axes: Axes, series: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Write each name beside the end of its curve, moved apart where two would overlap."""
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
    """Rising heights, moved as little as a simple pass can so that neighbours are `gap` apart, within 0 to 1."""
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

    weights: (target, source), each row summing to 1, or None to draw the gold links alone. A last row or column
    more than there are words is the end token's. gold and possible: links (source index, target index), outlined
    with a solid and a dashed line. At most 60 words a side are drawn, and the picture says where it was cut.

    Raises ValueError when the weights do not fit the words or a link lies outside them.
    """
    panel = {"weights": weights, "source": source, "target": target, "gold": gold, "possible": possible}
    return attention_matrices.build([{**panel, "title": title}])


@_shown
def attention_matrices(panels: Sequence[Mapping], *, title: str = "") -> tuple[Figure, str]:
    """Several attention matrices in one figure: each panel is a dict of what `attention_matrix` takes.

    Raises ValueError as `attention_matrix` does, and for no panels.
    """
    if not panels:
        raise ValueError("there is no matrix to draw: give at least one panel")
    panels = [_Panel(**panel) for panel in panels]
    sizes = [panel.size() for panel in panels]
    side_by_side = sum(width for width, _ in sizes) <= 14
    if side_by_side:
        figsize = (sum(width for width, _ in sizes) + 1, max(height for _, height in sizes))
        grid = {"ncols": len(panels), "width_ratios": [width for width, _ in sizes]}
    else:
        figsize = (max(width for width, _ in sizes) + 1, sum(height for _, height in sizes))
        grid = {"nrows": len(panels), "height_ratios": [height for _, height in sizes]}
    figure = Figure(figsize=figsize, layout="constrained")
    all_axes = figure.subplots(squeeze=False, **grid).ravel()
    for axes, panel in zip(all_axes, panels, strict=True):
        panel.draw(axes)
    if any(panel.weights is not None for panel in panels):
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, 1), "Blues"), ax=list(all_axes), shrink=0.8, pad=0.02
        )
        bar.set_label("attention weight")
    if title:
        figure.suptitle(title, fontsize=14)
    opening = f"{title}. " if title else ""
    if len(panels) > 1:
        return figure, opening + " ".join(f"Panel {i}: {panel.alt()}" for i, panel in enumerate(panels, 1))
    return figure, opening + panels[0].alt()


class _Panel:
    """One attention matrix, checked and cut to what can be read."""

    def __init__(self, weights, source, target, gold=(), possible=(), title=""):
        self.gold, self.possible, self.title = set(gold), set(possible) - set(gold), title
        shape = (len(target), len(source)) if weights is None else np.shape(weights)
        if len(shape) != 2:
            raise ValueError(f"weights must be (target, source), two axes; this array has shape {shape}")
        rows, columns = shape
        target, source = _with_end(target, rows, "target", shape), _with_end(source, columns, "source", shape)
        for s, t in self.gold | self.possible:
            if not (0 <= s < columns and 0 <= t < rows):
                raise ValueError(
                    f"link (source {s}, target {t}) lies outside {columns} source and {rows} target words; "
                    "links are (source index, target index), counted from 0"
                )
        self.cut = [
            f"only the first {MAX_WORDS} of {count} {side} words are drawn"
            for side, count in (("source", columns), ("target", rows))
            if count > MAX_WORDS
        ]
        self.source, self.target = source[:MAX_WORDS], target[:MAX_WORDS]
        self.weights = None if weights is None else np.asarray(weights, float)[:MAX_WORDS, :MAX_WORDS]
        self.gold, self.possible = (
            {(s, t) for s, t in links if s < MAX_WORDS and t < MAX_WORDS}
            for links in (self.gold, self.possible)
        )

    def size(self) -> tuple[float, float]:
        """Width and height in inches, words included."""
        cell = min(0.55, 11 / max(len(self.source), len(self.target)))
        longest = [max(map(len, words), default=1) for words in (self.target, self.source)]
        return len(self.source) * cell + 0.11 * longest[0] + 0.4, len(self.target) * cell + 0.11 * longest[
            1
        ] + 0.9

    def draw(self, axes: Axes) -> None:
        rows, columns = len(self.target), len(self.source)
        axes.grid(False)
        axes.imshow(
            np.zeros((rows, columns)) if self.weights is None else self.weights, cmap="Blues", vmin=0, vmax=1
        )
        size = 12 if max(rows, columns) <= 20 else 9 if max(rows, columns) <= 40 else 7.5
        axes.set_xticks(range(columns), self.source, rotation=90 if columns > 8 else 40, fontsize=size)
        for label in axes.get_xticklabels():
            label.set(
                ha="center" if columns > 8 else "left", rotation_mode="anchor" if columns <= 8 else "default"
            )
        axes.set_yticks(range(rows), self.target, fontsize=size)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e4e4e4", linewidth=0.8)
        axes.tick_params(which="minor", length=0, top=False)
        if self.title:
            axes.set_title(self.title, pad=10)
        self._print_weights(axes)
        for links, dashes in ((self.gold, "-"), (self.possible, (0, (3, 2)))):
            for s, t in sorted(links):
                axes.add_patch(_outline(s, t, dashes, filled=self.weights is None and dashes == "-"))
        axes.set_xlabel("\n".join(self._notes()), fontsize=10)

    def _print_weights(self, axes: Axes) -> None:
        if self.weights is None or max(self.weights.shape) > 14:
            return
        for (t, s), weight in np.ndenumerate(self.weights):
            if weight >= 0.05:
                ink = readable_on(shade(weight))
                axes.text(s, t, f"{weight:.2f}", ha="center", va="center", fontsize=9.5, color=ink)

    def _notes(self) -> list[str]:
        names = [("solid outline: sure gold link", self.gold), ("dashed: possible link", self.possible)]
        legend = "; ".join(text for text, links in names if links)
        return [legend] * bool(legend) + self.cut

    def alt(self) -> str:
        kind = "Gold alignment" if self.weights is None else "Attention matrix"
        text = (
            f"{self.title}. " if self.title else ""
        ) + f"{kind}: {len(self.target)} target words as rows, {len(self.source)} source words as columns. "
        if self.weights is None:
            text += "; ".join(
                f"{self.target[t]} is linked to {self.source[s]}" for s, t in sorted(self.gold)
            )[:900]
            text += "."
        else:
            text += self._alt_rows()
        return text + "".join(f" Note: {note}." for note in self.cut)

    def _alt_rows(self) -> str:
        best = self.weights.argmax(1) if self.weights.size else []
        said = [
            f"{word} looks most at {self.source[s]} ({self.weights[t, s]:.2f})"
            for t, (word, s) in enumerate(zip(self.target, best, strict=True))
        ]
        text = "; ".join(said[:15]) + (f"; and {len(said) - 15} more rows" if len(said) > 15 else "") + "."
        linked = {t for _, t in self.gold}
        if linked:
            right = sum((int(best[t]), t) in self.gold for t in linked)
            text += f" The largest weight lies on a sure gold link for {right} of {len(linked)} linked target words."
        return text


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


def _outline(s: int, t: int, dashes, filled: bool) -> Rectangle:
    return Rectangle(
        (s - 0.45, t - 0.45),
        0.9,
        0.9,
        fill=filled,
        facecolor=shade(0.6),
        edgecolor=GOLD,
        linewidth=2.4,
        linestyle=dashes,
    )
