"""What every picture shares: the style, how it is shown, colours, and boxes and arrows to draw with."""

import base64
import functools
import inspect
import io
from collections.abc import Callable
from html import escape

import matplotlib.style
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from PIL import Image  # matplotlib's own reader and writer of images

# The colours of Okabe and Ito (2008), which colour-blind readers tell apart; without yellow, pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GOLD = PALETTE[1]  # the outline of a gold alignment link, in every picture and in the widgets

INK = "#222222"
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 12.0,
    "axes.titlesize": 13.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
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


def shown(build: Callable[..., tuple[Figure, str]]) -> Callable[..., None]:
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


def plain(value: float) -> str:
    """A number as people write it: three significant digits, no exponent where it is not needed."""
    if not np.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:.3g}"


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


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A blank sheet measured in inches."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return figure, axes


def box(axes: Axes, x, y, width, height, text, *, colour, size=13) -> None:
    shape = FancyBboxPatch((x, y), width, height, "round,pad=0,rounding_size=0.1", fc=colour, ec=INK, lw=1.2)
    axes.add_patch(shape)
    middle = (x + width / 2, y + height / 2)
    axes.text(
        *middle, text, ha="center", va="center", fontsize=size, color=readable_on(colour), linespacing=1.35
    )


def arrow(axes: Axes, start, end, width: float, colour: str = PALETTE[0]) -> None:
    """An arrow whose line is `width` points thick."""
    shape = f"simple,tail_width={width},head_width={width + 6},head_length={min(6 + width, 12)}"
    arrow = FancyArrowPatch(start, end, arrowstyle=shape, shrinkA=0, shrinkB=0, color=colour, lw=0)
    axes.add_patch(arrow)
