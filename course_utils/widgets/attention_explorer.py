"""The attention explorer: step through a translation and see where each target word looks.

Plain functions (`explain`, `step_to`, `render`) make what is shown; `Explorer` ties them to the controls.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as widgets
import numpy as np
from matplotlib.figure import Figure

from course_utils import figures
from course_utils.corpus import Pair, detokenise, tokenise
from course_utils.widgets import shell

if TYPE_CHECKING:
    from course_utils.decoding import Translation

Translate = Callable[[list[str]], "Translation"]
Links = frozenset[tuple[int, int]]

OWN = -1  # in the list of examples: the reader's own sentence
_LIST = "display:flex;flex-wrap:wrap;gap:8px;list-style:none;margin:4px 0 12px;padding:0"


@dataclass(frozen=True)
class View:
    """One translated sentence and the target word that is looked at (`position`, counted from 0)."""

    source: tuple[str, ...]  # with the end token where the weights have a column for it
    target: tuple[str, ...]  # with the end token where the weights have a row for it
    weights: np.ndarray  # (target, source)
    unknown: frozenset[str] = frozenset()
    gold: Links = frozenset()
    possible: Links = frozenset()
    note: str = ""
    position: int = 0


def attention_explorer(
    translate: Translate, examples: Iterable[Pair], *, source_language: str, target_language: str
) -> None:
    """Show the explorer: choose or type a sentence, step through its translation, see the source light up.

    translate: a tokenised sentence to its Translation, with weights. examples: pairs to choose from; where
    the translation is the pair's target, the pair's gold links are outlined. Languages as in `tokenise`.

    Where no widget can run, a picture of the first example's attention matrix is seen instead. Raises
    ValueError when there is no example or the first one cannot be shown.
    """
    Explorer(translate, examples, source_language=source_language, target_language=target_language).show()


# ---- what is shown


def explain(translate: Translate, sentence: Sequence[str], pair: Pair | None = None) -> View:
    """Translate the sentence, and lay its weights out for looking. `pair`: where its gold links come from.

    Raises Refused for a sentence that is empty or too long, and for a model that gives no weights.
    """
    if not sentence:
        raise shell.Refused("There is no word to translate: type a sentence.")
    if len(sentence) > figures.MAX_WORDS:
        raise shell.Refused(
            f"This sentence has {len(sentence)} words and punctuation marks; the explorer shows up to "
            f"{figures.MAX_WORDS}. Shorten it, and press Enter again."
        )
    translation = translate(list(sentence))
    if translation.weights is None:
        raise shell.Refused("This model gives no attention weights; choose a model with attention.")
    weights = np.asarray(translation.weights)
    end = [figures.END]
    view = View(
        source=(*sentence, *end[: weights.shape[1] - len(sentence)]),
        target=(*translation.tokens, *end[: weights.shape[0] - len(translation.tokens)]),
        weights=weights,
        unknown=frozenset(translation.unknown),
    )
    if weights.shape != (len(view.target), len(view.source)):
        raise ValueError(
            f"weights of shape {weights.shape} (target, source) do not fit {len(translation.tokens)} target "
            f"and {len(sentence)} source words, each with or without the end token"
        )
    if pair is None or not pair.links:
        return view
    if tuple(translation.tokens) != tuple(pair.target):
        reference = " ".join(pair.target)
        note = f"No gold alignment: it belongs to the reference, “{reference}”."
        return replace(view, note=note)
    return replace(view, gold=pair.links, possible=pair.possible)


def step_to(view: View, position: int) -> View:
    """The same sentence with another target word looked at, within its ends."""
    return replace(view, position=min(max(position, 0), len(view.target) - 1))


def unknown_words(view: View, known: Iterable[str]) -> str:
    """What to tell the reader about words that the model has never seen; empty where there are none."""
    if not view.unknown:
        return ""
    known = sorted(set(known) - view.unknown)
    near = [word for unknown in sorted(view.unknown) for word in get_close_matches(unknown, known, n=2)]
    words = list(dict.fromkeys([*near, *known[:: max(1, len(known) // 8)]]))[:8]
    return f"Not in the vocabulary: {_quoted(sorted(view.unknown))}. Known words include {_quoted(words)}."


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"“{word}”" for word in words)


def render(view: View, *, source_language: str, target_language: str) -> str:
    """The pane as HTML: the source words lit by weight, the translation with the current word marked."""
    row = view.weights[view.position]
    sources = "".join(_source_word(view, s, float(weight)) for s, weight in enumerate(row))
    targets = "".join(_target_word(view, t) for t in range(len(view.target)))
    return shell.pane(
        "Attention of one target word",
        f"<div>Source, lit by the attention of “{_lang(view.target[view.position], target_language)}”:</div>",
        f'<ol aria-label="source words with their weights" lang="{escape(source_language)}" style="{_LIST}">',
        f"{sources}</ol><div>Translation, word by word:</div>",
        f'<ol aria-label="target words" lang="{escape(target_language)}" style="{_LIST}">{targets}</ol>',
        shell.status(summary(view)),
        shell.note(_legend(view)),
    )


def summary(view: View) -> str:
    """Where the current word looks, in one sentence."""
    row = view.weights[view.position]
    order = [int(s) for s in np.argsort(-row, kind="stable") if row[s] >= 0.005][:3]
    looks = ", ".join(f"{shell.percent(row[s])} on “{view.source[s]}”" for s in order)
    word = view.target[view.position]
    return f"Word {view.position + 1} of {len(view.target)}, “{word}”, looks: {looks}."


def _source_word(view: View, s: int, weight: float) -> str:
    colour = figures.shade(weight)
    link = (s, view.position)
    kind = "gold" if link in view.gold else "possible" if link in view.possible else ""
    dashes = {"gold": "solid", "possible": "dashed", "": "none"}[kind]
    cues = [shell.percent(weight), kind, "unknown" if view.source[s] in view.unknown else ""]
    style = (
        f"background:{colour};color:{figures.readable_on(colour)};padding:4px 8px;min-width:2.5em;"
        "text-align:center;border:1px solid #767676;border-radius:4px;"
        f"outline:3px {dashes} {figures.GOLD};outline-offset:1px"
    )
    cue = f'<span style="font-size:85%">{" · ".join(filter(None, cues))}</span>'
    return f'<li style="{style}"><b>{escape(view.source[s])}</b><br>{cue}</li>'


def _target_word(view: View, t: int) -> str:
    word = escape(view.target[t])
    if t == view.position:
        return f'<li aria-current="true" style="padding:2px 6px;border:2px solid #000"><b>▸ {word}</b></li>'
    return f'<li style="padding:4px 8px;color:{"#000" if t < view.position else shell.GREY}">{word}</li>'


def _legend(view: View) -> str:
    lines = ["The darker a source word, the larger its weight; the weights sum to 100%."]
    if view.gold:
        lines.append("Outlined: the gold alignment of the current word (dashed: a possible link).")
    lines += [view.note] if view.note else []
    return " ".join(lines)


def _lang(word: str, language: str) -> str:
    return f'<span lang="{escape(language)}">{escape(word)}</span>'


# ---- the controls


class Explorer(shell.Shell):
    """The controls around a View. Every callback ends in `update`, or in a message in the pane."""

    invitation = "Run this notebook to step through the translation word by word and to type sentences."

    def __init__(
        self, translate: Translate, examples: Iterable[Pair], *, source_language: str, target_language: str
    ):
        super().__init__()
        self.translate, self.examples = translate, list(examples)
        if not self.examples:
            raise ValueError("the explorer has no example to start from: give at least one pair")
        self.languages = {"source_language": source_language, "target_language": target_language}
        self.known = {word for pair in self.examples for word in pair.source}

        wide = widgets.Layout(width="98%")
        titles = [detokenise(pair.source, source_language) for pair in self.examples]
        self.choice = widgets.Dropdown(
            options=[*zip(titles, range(len(titles)), strict=True), ("(your own sentence)", OWN)],
            value=0,
            description="Choose:",
            style=shell.LABEL,
            layout=wide,
        )
        self.text = widgets.Text(
            description="Or type:",
            placeholder="a sentence of your own, then Enter",
            continuous_update=False,
            style=shell.LABEL,
            layout=wide,
        )
        self.steps = shell.Stepper("Target word:", "target word", self.guarded(self.step))
        self.box = widgets.VBox([self.choice, self.text, self.steps.row, self.message, self.pane])

        self._show_sentence(self.examples[0].source, self.examples[0])
        self.choice.observe(self.guarded(lambda change: self.choose(change["new"])), "value")
        self.text.observe(self.guarded(lambda change: self.type(change["new"])), "value")

    def choose(self, index: int) -> None:
        """Show an example, or leave the stage to the sentence that the reader types (OWN)."""
        if index != OWN:
            self.text.value = ""
            self._show_sentence(self.examples[index].source, self.examples[index])

    def type(self, text: str) -> None:
        """Show a sentence that was typed; an empty field changes nothing."""
        if text.strip():
            self.choice.value = OWN
            self._show_sentence(tokenise(text, self.languages["source_language"]))

    def step(self, position: int) -> None:
        if position != self.view.position:
            self.update(step_to(self.view, position))

    def update(self, view: View) -> None:
        """Bring every control in line with the view."""
        self.view = view
        self.steps.show(view.position, len(view.target))
        self.pane.value = render(view, **self.languages)

    def still(self) -> tuple[Figure, str]:
        """The whole sentence as one picture."""
        view = self.view
        links = {"gold": view.gold, "possible": view.possible}
        title = "Attention over a whole sentence"
        return figures.attention_matrix.build(view.weights, view.source, view.target, **links, title=title)

    def _show_sentence(self, sentence: Sequence[str], pair: Pair | None = None) -> None:
        self.message.value = shell.message("Translating …", "status")
        view = explain(self.translate, sentence, pair)
        self.update(view)
        self.message.value = shell.message(unknown_words(view, self.known), "status")
