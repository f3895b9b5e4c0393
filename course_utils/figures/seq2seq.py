"""Encoder and decoder in pictures."""

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from course_utils.figures.base import GOLD, INK, PALETTE, arrow, box, canvas, shade, shown


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


@shown
def forcing_diagram(words: Sequence[str], said: Sequence[str]) -> tuple[Figure, str]:
    """What a decoder reads: the right words (teacher forcing) above, its own words (free running) below.

    words: the right translation. said: what the decoder says where it runs free; as many words.

    Raises ValueError where the two differ in length or are empty.
    """
    if not words or len(words) != len(said):
        raise ValueError(
            f"{len(words)} right words and {len(said)} said ones; give as many of both, 1 or more"
        )
    right, own = ["<bos>", *words, "<eos>"], ["<bos>", *said, "<eos>"]
    step, left = 1.6, 2.2
    figure, axes = canvas(left + step * (len(words) + 1) + 0.2, 6.3)
    for bottom, read, predicted, name in (
        (3.4, right, right, "teacher forcing\nin training"),
        (0.2, own, own, "free running\nin use"),
    ):
        free = bottom < 1
        axes.text(0.1, bottom + 1.35, name, va="center", fontsize=12, fontweight="bold")
        for height, text in ((0.25, "reads"), (2.45, "predicts")):
            axes.text(
                left - 0.15, bottom + height, text, ha="right", va="center", fontsize=12, color="#555555"
            )
        for t in range(len(words) + 1):
            x = left + (t + 0.5) * step
            wrong = free and own[t] != right[t]
            _word(axes, x, bottom + 0.25, read[t], wrong)
            arrow(axes, (x, bottom + 0.5), (x, bottom + 0.98), 1.5, "#999999")
            box(axes, x - 0.45, bottom + 1.0, 0.9, 0.7, f"$s_{{{t + 1}}}$", colour="#fde3cf")
            if t:
                arrow(axes, (x - step + 0.47, bottom + 1.35), (x - 0.47, bottom + 1.35), 1.5, "#999999")
            arrow(axes, (x, bottom + 1.72), (x, bottom + 2.2), 1.5, "#999999")
            _word(axes, x, bottom + 2.45, predicted[t + 1], free and own[t + 1] != right[t + 1])
            if free and t < len(words):
                arrow(axes, (x + 0.3, bottom + 2.25), (x + step - 0.35, bottom + 0.5), 1.2)
    axes.plot([0.1, left + step * (len(words) + 1)], [3.2, 3.2], color="#cccccc", lw=1)
    wrong = [f"“{b}” for “{a}”" for a, b in zip(words, said, strict=True) if a != b]
    alt = (
        f"Diagram of a decoder over {len(words) + 1} steps. Above, teacher forcing: it reads "
        f"{' '.join(right[:-1])} and has to predict {' '.join(right[1:])}, each word one step before it is "
        "read. Below, free running: each word that it predicts is what it reads next, "
        + (f"with {', '.join(wrong)}: a wrong word is read as well." if wrong else "here without a mistake.")
    )
    return figure, alt


def _word(axes: Axes, x: float, y: float, text: str, wrong: bool) -> None:
    look = {"color": GOLD, "fontweight": "bold", "style": "italic"} if wrong else {}
    axes.text(x, y, text, ha="center", va="center", fontsize=12 if len(text) < 10 else 10, **look)


Continuation = tuple[str, float, int, bool]  # word, log-probability of the whole, parent, kept


@shown
def beam_tree(
    steps: Sequence[Sequence[Continuation]], *, end: str = "<eos>", title: str = ""
) -> tuple[Figure, str]:
    """The continuations that a beam search looks at, step by step: kept ones in boxes, the others pale.

    steps: for each step its continuations, the best first: (word, log-probability of the whole beginning,
    place of its parent in the step before (0 in the first), whether it is kept).
    end: the word that completes a sentence.

    Raises ValueError for a step without continuations, or a parent that is not there or was not kept.
    """
    rows = max((len(step) for step in steps), default=0)
    if not rows or not all(steps):
        raise ValueError("every step needs at least one continuation to draw")
    wide, high = 2.3, 0.62
    figure, axes = canvas(1.4 + wide * len(steps), high * rows + 1.1)
    top = high * rows + 0.35
    places = [{0: (0.95, top - high * rows / 2)}]  # where the lines to the next step start
    box(axes, 0.1, places[0][0][1] - 0.2, 0.85, 0.4, "<bos>", colour="#eeeeee", size=11)
    for number, step in enumerate(steps):
        x, offset = 1.45 + wide * number, (rows - len(step)) * high / 2
        places.append({})
        axes.text(x + 0.85, top + 0.35, f"step {number + 1}", ha="center", fontsize=11, color="#555555")
        for row, (word, total, parent, kept) in enumerate(step):
            if parent not in places[number]:
                raise ValueError(f"step {number + 1}: the parent {parent} of {word!r} was not kept")
            y = top - offset - (row + 0.5) * high
            _continuation(axes, x, y, f"{word}  {total:.2f}", places[number][parent], kept, word == end)
            if kept and word != end:
                places[-1][row] = (x + 1.7, y)
    if title:
        axes.text(0.1, top + 0.35, title, fontsize=12, fontweight="bold", ha="left")
    said = [
        f"Step {number}: "
        + ", ".join(f"“{word}” {total:.2f} {'kept' if kept else 'dropped'}" for word, total, _, kept in step)
        for number, step in enumerate(steps, start=1)
    ]
    alt = (
        f"Tree of a beam search over {len(steps)} steps; the number is the log-probability of the whole "
        f"beginning. Boxes are kept, pale words dropped, a double outline is a complete sentence. "
        + ". ".join(said)
        + "."
    )
    return figure, alt


def _continuation(axes: Axes, x: float, y: float, text: str, start, kept: bool, ended: bool) -> None:
    axes.plot(
        [start[0], x],
        [start[1], y],
        color=PALETTE[0] if kept else "#bbbbbb",
        lw=1.8 if kept else 0.9,
        zorder=0,
    )
    if not kept:
        axes.text(x + 0.08, y, text, va="center", fontsize=10.5, color="#777777")
        return
    box(axes, x, y - 0.22, 1.7, 0.44, text, colour="#fde3cf" if ended else shade(0.2), size=10.5)
    if ended:
        axes.add_patch(Rectangle((x + 0.06, y - 0.16), 1.58, 0.32, fill=False, edgecolor=INK, linewidth=1))
