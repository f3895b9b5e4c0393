"""The explorer without a browser: what it shows, and what its controls do."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import PAIR, translate

from course_utils import figures
from course_utils.corpus import Pair
from course_utils.widgets import attention_explorer
from course_utils.widgets.attention_explorer import (
    OWN,
    Explorer,
    explain,
    render,
    step_to,
    unknown_words,
)
from course_utils.widgets.shell import Refused

LANGUAGES = {"source_language": "en", "target_language": "fr"}
OTHER = Pair(("the", "small", "house"), ("la", "jolie", "maison"), frozenset({(0, 0), (1, 1), (2, 2)}))


@pytest.fixture
def explorer():
    return Explorer(translate, [PAIR, OTHER], **LANGUAGES)


class Parsed(HTMLParser):
    """The pane as a reader gets it: the words of both lists with their style, and all text."""

    def __init__(self, html):
        super().__init__()
        self.items, self.text, self.tags = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "li":
            self.items.append({"text": "", **dict(attributes)})

    def handle_data(self, data):
        self.text += data
        if self.items:
            self.items[-1]["text"] += data

    def item(self, word):
        return next(item for item in self.items if word in item["text"])


def pane(view):
    return Parsed(render(view, **LANGUAGES))


# ---- what is shown


def test_the_weights_are_printed_and_the_gold_word_outlined():
    view = step_to(explain(translate, PAIR.source, PAIR), 1)
    shown = pane(view)
    house, blue = shown.item("house"), shown.item("blue")
    assert "80%" in house["text"] and "gold" in house["text"] and "solid " + figures.GOLD in house["style"]
    assert "7%" in blue["text"] and "gold" not in blue["text"] and "none " + figures.GOLD in blue["style"]
    assert [item["text"] for item in shown.items if item.get("aria-current")] == ["▸ maison"]
    assert "Word 2 of 4, “maison”, looks: 80% on “house”" in shown.text


def test_a_possible_link_is_dashed():
    pair = Pair(PAIR.source, PAIR.target, PAIR.links, frozenset({(1, 1)}))
    blue = pane(step_to(explain(translate, pair.source, pair), 1)).item("blue")
    assert "possible" in blue["text"] and "dashed " + figures.GOLD in blue["style"]


def test_gold_links_of_another_translation_are_not_drawn():
    view = explain(translate, OTHER.source, OTHER)
    shown = pane(view)
    assert not view.gold and not any("gold" in item["text"] for item in shown.items[:4])
    assert "it belongs to the reference, “la jolie maison”" in shown.text


def test_the_weights_may_come_without_end_token():
    def bare(tokens):
        translation = translate(tokens)
        return replace(translation, weights=translation.weights[:-1, :-1])

    view = explain(bare, PAIR.source)
    assert (view.source, view.target) == (PAIR.source, PAIR.target)


def test_weights_that_do_not_fit_are_an_error_not_a_picture():
    def wrong(tokens):
        translation = translate(tokens)
        return replace(translation, weights=translation.weights.T[:1])

    with pytest.raises(ValueError, match=r"weights of shape \(1, 4\)"):
        explain(wrong, PAIR.source)


@pytest.mark.parametrize(
    ("sentence", "told"),
    [([], "no word"), (["the"] * (figures.MAX_WORDS + 1), "61 words .* up to 60. Shorten it")],
)
def test_a_sentence_of_no_use_is_refused_in_words(sentence, told):
    with pytest.raises(Refused, match=told):
        explain(translate, sentence)


def test_the_longest_sentence_is_shown():
    assert len(explain(translate, ["the"] * figures.MAX_WORDS).source) == figures.MAX_WORDS + 1


def test_a_model_without_attention_is_refused():
    def no_weights(tokens):
        return replace(translate(tokens), weights=None)

    with pytest.raises(Refused, match="no attention weights"):
        explain(no_weights, PAIR.source)


@given(
    st.lists(st.sampled_from(["the", "small", "blue", "house", "<b>&\"'"]), min_size=1, max_size=60),
    st.integers(),
)
def test_any_position_gives_one_current_word_and_escaped_text(sentence, position):
    view = step_to(explain(translate, sentence), position)
    shown = pane(view)
    assert 0 <= view.position < len(view.target)
    assert sum("aria-current" in item for item in shown.items) == 1
    assert len(shown.items) == len(view.source) + len(view.target)
    assert shown.tags.count("b") == len(view.source) + 1  # the words in bold, none from the text


@given(st.floats(0, 1))
def test_every_shade_carries_readable_text(weight):
    colour = figures.shade(weight)
    assert figures.contrast(colour, figures.readable_on(colour)) >= 4.5


def test_unknown_words_are_named_with_known_ones_near_them():
    view = explain(translate, ["the", "hous", "zzz"])
    told = unknown_words(view, ["the", "house", "blue"])
    assert told.startswith("Not in the vocabulary: “hous”, “zzz”. Known words include “house”")
    assert unknown_words(explain(translate, ["the"]), ["the"]) == ""


# ---- the controls


def test_it_opens_on_the_first_example(explorer):
    assert explorer.view.source == (*PAIR.source, figures.END)
    assert (explorer.steps.slider.min, explorer.steps.slider.max, explorer.steps.slider.value) == (1, 4, 1)
    assert explorer.steps.previous.disabled and not explorer.steps.next.disabled
    assert explorer.message.value == ""


def test_slider_and_buttons_step(explorer):
    explorer.steps.slider.value = 3
    assert explorer.view.position == 2 and "“bleue”" in explorer.pane.value
    explorer.steps.next.click()
    assert explorer.steps.slider.value == 4 and explorer.steps.next.disabled
    explorer.steps.previous.click()
    explorer.steps.previous.click()
    assert explorer.steps.slider.value == 2 and "“maison”" in explorer.pane.value


def test_choosing_and_typing_follow_each_other(explorer):
    explorer.steps.slider.value = 4
    explorer.text.value = "The small blue house and the house"
    assert explorer.choice.value == OWN
    assert explorer.view.source[:4] == ("the", "small", "blue", "house")
    assert (explorer.steps.slider.value, explorer.steps.slider.max) == (1, 8)
    explorer.steps.slider.value = 8
    explorer.choice.value = 1
    assert explorer.text.value == "" and explorer.view.source == (*OTHER.source, figures.END)
    assert (explorer.steps.slider.value, explorer.steps.slider.max) == (1, 4)
    explorer.text.value = "the house"
    explorer.choice.value = 1
    assert explorer.view.source == (*OTHER.source, figures.END)


def test_unknown_words_are_told(explorer):
    explorer.text.value = "the green house"
    assert "Not in the vocabulary: “green”" in explorer.message.value
    explorer.text.value = "the blue house"
    assert explorer.message.value == ""


def test_a_refused_sentence_stays_in_its_field(explorer):
    before = explorer.pane.value
    long = "the " * 61
    explorer.text.value = long
    assert "61 words" in explorer.message.value and 'role="alert"' in explorer.message.value
    assert explorer.text.value == long and explorer.pane.value == before


def test_an_error_in_a_callback_is_shown_with_its_place():
    def breaks(tokens):
        if "small" in tokens:
            raise KeyError("<small>")
        return translate(tokens)

    explorer = Explorer(breaks, [PAIR, OTHER], **LANGUAGES)
    explorer.choice.value = 1
    told = explorer.message.value
    assert "KeyError: &#x27;&lt;small&gt;&#x27; (test_attention_explorer.py, line " in told
    assert explorer.view.source == (*PAIR.source, figures.END)


def test_one_target_word_leaves_nothing_to_step():
    def silent(tokens):
        translation = translate(tokens)
        return replace(translation, tokens=[], weights=translation.weights[-1:])

    explorer = Explorer(silent, [PAIR], **LANGUAGES)
    assert (
        explorer.steps.slider.disabled and explorer.steps.previous.disabled and explorer.steps.next.disabled
    )
    assert explorer.steps.slider.min < explorer.steps.slider.max


def test_an_error_of_the_first_example_is_raised():
    with pytest.raises(ValueError, match="at least one pair"):
        Explorer(translate, [], **LANGUAGES)
    with pytest.raises(ZeroDivisionError):
        Explorer(lambda tokens: 1 / 0, [PAIR], **LANGUAGES)


def test_one_output_carries_the_widget_and_the_picture(explorer):
    bundle = explorer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == explorer.box.model_id
    assert "“maison” looks most at “house” (0.80)" in bundle["text/plain"]
    assert re.match(
        r'<img alt="[^"]+" style="max-width:100%" src="data:image/png;base64,', bundle["text/html"]
    )
    assert not re.search(r"https?:|<script", bundle["text/html"] + explorer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert attention_explorer(translate, [PAIR], **LANGUAGES) is None
    assert capsys.readouterr().out == ""


def test_the_picture_shows_the_gold_alignment(explorer):
    assert "sure gold link for 3 of 3 linked words" in explorer.bundle()["text/plain"]
    assert np.allclose(explorer.view.weights.sum(1), 1)
