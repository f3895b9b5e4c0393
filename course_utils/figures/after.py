"""After the Transformer in pictures: what each model reads and predicts, a softmax in blocks, a timeline."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_utils.figures.base import INK, PALETTE, arrow, box, canvas, plain, shade, shown

STEP = 1.12  # from word to word
MOST_WORDS = 12  # more words in a row cannot be read


@shown
def tasks_diagram(
    tasks: Mapping[str, Sequence[tuple[Sequence[str], Sequence[str], str]]], special: Sequence[str] = ()
) -> tuple[Figure, str]:
    """What models read and what they are to predict, a row a model and a box a stack.

    tasks: {name: stacks}; a stack is (words it reads, words it predicts above them, what to write into
    its box), with "" where nothing is predicted. Where a model has two stacks, the right one looks at the
    left one. special: words drawn as signs ("[MASK]").

    Raises ValueError for a stack that predicts in other places than it reads, or that has more than 12 words.
    """
    for name, stacks in tasks.items():
        for reads, predicts, _ in stacks:
            if not 1 <= len(reads) <= MOST_WORDS or len(predicts) not in (0, len(reads)):
                raise ValueError(
                    f"{name}: {len(reads)} words are read and {len(predicts)} predicted; give 1 to "
                    f'{MOST_WORDS} words, and as many predictions ("" for none) or none'
                )
    widest = max(
        sum(len(reads) for reads, _, _ in stacks) + 0.8 * (len(stacks) - 1) for stacks in tasks.values()
    )
    figure, axes = canvas(1.5 + STEP * widest, 2.2 * len(tasks) + 0.1)
    said = []
    for row, (name, stacks) in enumerate(tasks.items()):
        bottom = 2.2 * (len(tasks) - 1 - row) + 0.1
        axes.text(0.1, bottom + 1.0, name, va="center", fontsize=13, fontweight="bold")
        x, told = 1.4, []
        for number, (reads, predicts, text) in enumerate(stacks):
            if number:
                arrow(axes, (x - 0.85, bottom + 1.0), (x - 0.05, bottom + 1.0), 2)
            box(axes, x, bottom + 0.72, STEP * len(reads) - 0.1, 0.56, text, colour=shade(0.12), size=11)
            _stack(axes, x, bottom, reads, predicts, special)
            x += STEP * (len(reads) + 0.8)
            wanted = [f"{word} at place {i + 1}" for i, word in enumerate(predicts) if word]
            told.append(f"reads “{' '.join(reads)}” ({text}) and predicts {', '.join(wanted) or 'nothing'}")
        said.append(f"{name}: " + "; a second stack, which looks at the first, ".join(told))
    return figure, "Diagram of what models read and predict. " + ". ".join(said) + "."


def _stack(
    axes: Axes, x: float, bottom: float, reads: Sequence[str], predicts: Sequence[str], special: Sequence[str]
) -> None:
    for i, word in enumerate(reads):
        middle = x + STEP * (i + 0.5) - 0.05
        _word(axes, middle, bottom + 0.2, word, word in special)
        arrow(axes, (middle, bottom + 0.4), (middle, bottom + 0.7), 1.2, "#999999")
        if predicts and predicts[i]:
            arrow(axes, (middle, bottom + 1.3), (middle, bottom + 1.6), 1.2, "#999999")
            _word(axes, middle, bottom + 1.82, predicts[i], predicts[i] in special)


def _word(axes: Axes, x: float, y: float, word: str, sign: bool) -> None:
    look = {"color": PALETTE[1], "fontweight": "bold"} if sign else {"color": INK}
    axes.text(x, y, word, ha="center", va="center", fontsize=12 if len(word) < 9 else 10, **look)


@shown
def softmax_in_blocks(
    blocks: Sequence[Sequence[float]], running: Sequence[tuple[float, float, float]]
) -> tuple[Figure, str]:
    """Scores in blocks, and what is kept after each: the highest so far, the factor on the old sum, the sum.

    blocks: the scores of each block. running: (highest, factor, sum) after each.

    Raises ValueError where the two differ in length.
    """
    if len(blocks) != len(running):
        raise ValueError(f"{len(blocks)} blocks and {len(running)} states: give one state a block")
    scores = [score for block in blocks for score in block]
    figure, axes = canvas(0.62 * len(scores) + 0.5 * len(blocks) + 2.3, 4.4)
    low, high = min(0.0, *scores), max(0.0, *scores)
    unit = 1.9 / (high - low or 1)
    zero, x, said = 1.75 - unit * low, 2.1, []
    for label, y in (("score", 2.7), ("highest so far", 1.25), ("old sum ×", 0.8), ("sum", 0.35)):
        axes.text(0.1, y, label, va="center", fontsize=12, fontweight="bold")
    for number, (block, (top, factor, total)) in enumerate(zip(blocks, running, strict=True), start=1):
        width = 0.62 * len(block)
        axes.text(x + width / 2, 4.15, f"block {number}", ha="center", fontsize=12)
        for i, score in enumerate(block):
            place = (x + 0.62 * i + 0.06, zero + min(0.0, unit * score))
            colour = PALETTE[0] if score == top else PALETTE[5]
            axes.add_patch(
                Rectangle(place, 0.5, abs(unit * score) or 0.01, facecolor=colour, edgecolor=INK, lw=0.8)
            )
            above = zero + max(0.0, unit * score) + 0.12
            axes.text(place[0] + 0.25, above, plain(score), ha="center", va="center", fontsize=10)
        axes.plot([x + width, x], [zero, zero], color=INK, lw=1)
        for y, value in ((1.25, top), (0.8, factor), (0.35, total)):
            axes.text(x + width / 2, y, plain(value), ha="center", va="center", fontsize=12)
        said.append(
            f"block {number} has the scores {', '.join(map(plain, block))}; after it the highest is "
            f"{plain(top)}, the old sum was multiplied by {plain(factor)}, and the sum is {plain(total)}"
        )
        x += width + 0.5
    return figure, f"Bars of {len(scores)} scores in {len(blocks)} blocks. " + ". ".join(said) + "."


@shown
def timeline(events: Sequence[tuple[int, str, str]]) -> tuple[Figure, str]:
    """What came when: a row a year, a column a kind. events: (year, name, kind).

    Raises ValueError where there is none.
    """
    if not events:
        raise ValueError("there is no event to draw: give at least one")
    kinds = list(dict.fromkeys(kind for _, _, kind in events))
    years = sorted({year for year, _, _ in events})
    cells = {
        (y, k): [name for year, name, kind in events if (year, kind) == (y, k)] for y in years for k in kinds
    }
    heights = [0.3 * max(len(cells[year, kind]) for kind in kinds) + 0.12 for year in years]
    wide = 3.3
    figure, axes = canvas(1.0 + wide * len(kinds), sum(heights) + 0.6)
    top = sum(heights) + 0.1
    for column, kind in enumerate(kinds):
        axes.text(
            1.1 + wide * column, top + 0.22, kind, fontsize=12, fontweight="bold", color=PALETTE[column % 4]
        )
    for year, height in zip(years, heights, strict=True):
        axes.plot([0.1, 0.9 + wide * len(kinds)], [top, top], color="#dddddd", lw=1)
        axes.text(0.15, top - 0.2, str(year), va="center", fontsize=12)
        for column, kind in enumerate(kinds):
            for line, name in enumerate(cells[year, kind]):
                y = top - 0.2 - 0.3 * line
                axes.plot(1.0 + wide * column, y, "os^D"[column % 4], color=PALETTE[column % 4], markersize=6)
                axes.text(1.12 + wide * column, y, name, va="center", fontsize=11)
        top -= height
    said = [
        f"{year}: "
        + "; ".join(f"{', '.join(cells[year, kind])} ({kind})" for kind in kinds if cells[year, kind])
        for year in years
    ]
    return figure, f"Timeline in {len(kinds)} columns: {', '.join(kinds)}. " + ". ".join(said) + "."
