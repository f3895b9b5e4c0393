"""What the widgets share: a pane with its messages, controls, drawing, and one output with a picture."""

import base64
import traceback
from collections.abc import Callable
from html import escape
from pathlib import Path

import ipywidgets as widgets
import numpy as np
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from course_utils import figures

GREY = "#595959"  # what is not there yet, and notes: 7:1 on white
LABEL = {"description_width": "9em"}
_PANE = (
    "background:#fff;color:#000;padding:12px 14px;border:1px solid #767676;border-radius:6px;line-height:1.4"
)


class Refused(ValueError):
    """What cannot be shown, in words for the reader who asked for it."""


# ---- pieces of HTML


def pane(name: str, *parts: str) -> str:
    """The place where a widget shows things: black on white with a border, named for screen readers."""
    return f'<section aria-label="{escape(name)}" style="{_PANE}">{"".join(parts)}</section>'


def status(text: str) -> str:
    """A sentence that a screen reader speaks whenever it changes."""
    return f'<p role="status" aria-live="polite" style="margin:0">{escape(text)}</p>'


def note(text: str) -> str:
    """How to read what stands above, in small print."""
    return f'<p style="margin:6px 0 0;font-size:85%;color:{GREY}">{escape(text)}</p>'


def message(text: str, role: str) -> str:
    """A text that stands out; nothing for an empty one. role: "status", or "alert" for errors."""
    if not text:
        return ""
    border = f"border-left:4px solid {figures.GOLD};padding:6px 10px;background:#fff;color:#000"
    return f'<div role="{role}" style="{border}">{escape(text)}</div>'


def explain_error(error: Exception) -> str:
    """An error as HTML for the pane: a refusal in its own words, anything else with its type and place."""
    if isinstance(error, Refused):
        text = str(error)
    else:
        place = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in place)
        text = f"{type(error).__name__}: {error}{where}. What was shown before is kept."
    return message(text, "alert")


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


# ---- pieces of SVG: drawn by hand, since a control that moves wants its picture within a tenth of a second


def svg(width: float, height: float, alt: str, *shapes: str) -> str:
    """A drawing that fills the width it is given, up to its own, as one image with an alt text."""
    look = f'style="display:block;width:100%;max-width:{width}px;height:auto" font-family="sans-serif"'
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(alt)}"'
    return f"<svg {box} {look}>{''.join(shapes)}</svg>"


def text(x: float, y: float, words: str, *, size: float = 13, **attributes) -> str:
    """Words at a place, read from left to right; `text_anchor="end"` ends them there."""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{_attributes(attributes)}>{escape(words)}</text>'


def path(points: str, **attributes) -> str:
    """A line along `points` ("M0 0L1 1"), as wide as `stroke_width`."""
    return f'<path d="{points}" fill="none"{_attributes(attributes)}/>'


def rect(x: float, y: float, width: float, height: float, *, fill: str = "none", **attributes) -> str:
    """A rectangle, filled or with a `stroke`."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{escape(fill)}"{_attributes(attributes)}/>'


def raster(x: float, y: float, width: float, height: float, png: bytes) -> str:
    """A small image stretched over a rectangle, its pixels kept sharp."""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
    data = base64.b64encode(png).decode("ascii")
    return f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'


def strip(
    x: float, y: float, width: float, height: float, values: np.ndarray, *, signed: bool = False
) -> str:
    """A heat strip, values (rows, columns), over a rectangle; if signed, with a dot on each cell below 0."""
    shapes = [raster(x, y, width, height, figures.strip_png(values, signed))]
    row, column = height / values.shape[0], width / values.shape[1]
    if signed:
        places = zip(*np.nonzero(values < 0), strict=True)
        points = [f"M{x + (c + 0.5) * column:.1f} {y + (r + 0.5) * row:.1f}h0" for r, c in places]
        size = f"{min(3.0, row / 2, column / 2):.1f}"
        shapes.append(path("".join(points), stroke="#222222", stroke_width=size, stroke_linecap="round"))
    return "".join([*shapes, rect(x, y, width, height, stroke="#767676")])


def _attributes(named: dict) -> str:
    return "".join(f' {name.replace("_", "-")}="{escape(str(value))}"' for name, value in named.items())


# ---- controls


class Stepper:
    """A slider over 1 to `count`, a button to either side and, if wished, one that plays through all.

    `go` gets the wished position, counted from 0.
    """

    def __init__(self, description: str, thing: str, go: Callable[[int], None], *, play: bool = False):
        options = {"readout": False, "style": LABEL, "layout": widgets.Layout(width="60%")}
        self.slider = widgets.IntSlider(1, min=1, max=2, description=description, **options)
        self.play = widgets.Play(1, min=1, max=2, interval=500, show_repeat=False) if play else None
        self.previous = widgets.Button(description="Previous", tooltip=f"the {thing} before")
        self.next = widgets.Button(description="Next", tooltip=f"the next {thing}")
        self.counters = [self.play, self.slider] if play else [self.slider]
        for counter in self.counters:
            counter.observe(lambda change: go(change["new"] - 1), "value")
        self.previous.on_click(lambda _: go(self.slider.value - 2))
        self.next.on_click(lambda _: go(self.slider.value))
        self.row = widgets.HBox([*self.counters, self.previous, self.next])

    def show(self, position: int, count: int) -> None:
        count_or_two = max(count, 2)  # the browser's slider has no meaning for one step
        for counter in self.counters:
            counter.max = max(count_or_two, counter.value)  # room first: an end in the way moves a value
            counter.value = position + 1
            counter.max = count_or_two
            counter.disabled = count < 2
        self.previous.disabled, self.next.disabled = position == 0, position == count - 1


class Shell:
    """A message and a pane; a widget puts them into its `box` below its controls.

    Every callback is `guarded`: it ends in a new pane or in a message. `invitation` says what a running
    notebook offers, `still` draws what is seen where none runs.
    """

    invitation: str
    box: widgets.Box

    def __init__(self):
        self.message, self.pane = widgets.HTML(), widgets.HTML()

    def still(self) -> tuple[Figure, str]:
        """The picture that stands in for the widget, and its alt text."""
        raise NotImplementedError

    def guarded(self, action: Callable) -> Callable:
        """The action with its errors shown to the reader: Jupyter has no other place for them."""

        def callback(event):
            try:
                action(event)
            except Exception as error:
                self.message.value = explain_error(error)

        return callback

    def show(self) -> None:
        """Display the widget; outside IPython nothing happens."""
        if get_ipython() is not None:
            display(self.bundle(), raw=True)

    def bundle(self) -> dict:
        """The controls and, in the same output, a picture for where no widget runs."""
        figure, alt = self.still()
        return {
            "application/vnd.jupyter.widget-view+json": {
                "model_id": self.box.model_id,
                "version_major": 2,
                "version_minor": 0,
            },
            "text/html": f"{figures.image(figure, alt)}<p>{escape(self.invitation)}</p>",
            "text/plain": alt,
        }
