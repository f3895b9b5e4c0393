"""The mask builder without a browser: what it shows, and what its controls do."""

import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.models import masks
from course_utils.widgets import mask_builder
from course_utils.widgets.mask_builder import (
    MAX_PADDING,
    PATTERNS,
    WORDS,
    MaskBuilder,
    Settings,
    code_of,
    describe,
    leaks_of,
    mask_of,
    models,
    real,
    render,
    summary,
)

SETTINGS = st.builds(
    Settings,
    pattern=st.sampled_from(list(PATTERNS.values())),
    prefix=st.integers(1, len(WORDS)),
    window=st.integers(1, len(WORDS)),
    words=st.integers(1, len(WORDS)),
    padding=st.integers(0, MAX_PADDING),
    side=st.sampled_from(["end", "start"]),
    hidden=st.booleans(),
)  # the ends of the sliders


@pytest.fixture
def builder():
    return MaskBuilder()


# ---- what is shown


@given(SETTINGS)
def test_the_line_of_code_makes_the_mask_that_is_drawn(chosen):
    made = {"torch": torch, **vars(masks)}
    exec(code_of(chosen), made)
    line = torch.ones(1, 1, 1, dtype=torch.bool) if made["mask"] is None else made["mask"]
    drawn = mask_of(chosen)
    assert np.array_equal(line.broadcast_to(1, *drawn.shape)[0].numpy(), drawn)


@given(SETTINGS)
def test_the_mask_is_what_its_words_promise(chosen):
    mask, size = mask_of(chosen), chosen.size
    for row, column in np.ndindex(size, size):
        past = column <= row
        allowed = {
            "all": True,
            "causal": past,
            "prefix": past or column < chosen.prefix,
            "window": past and column > row - chosen.window,
        }[chosen.pattern]
        is_pad = chosen.tokens[column] == "<pad>"
        assert mask[row, column] == (allowed and not (is_pad and chosen.hidden))
    assert real(chosen).sum() == chosen.words and len(chosen.tokens) == size


@given(SETTINGS)
@settings(max_examples=40)
def test_every_setting_is_drawn_as_it_is(chosen):
    mask, shown = mask_of(chosen), render(chosen)
    assert shown.count(">●<") + shown.count(">!<") == mask.sum()
    leaks = leaks_of(chosen, mask)
    assert shown.count(">!<") == leaks.sum() and ("Leak" in shown) == leaks.any()
    assert shown.count("empty: sees nothing") == (~mask.any(axis=1)).sum()
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    places = re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', shown)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)
    assert "<pad>" not in shown and ("&lt;pad&gt;" in shown) == (chosen.padding > 0)


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (Settings("all"), "BERT"),
        (Settings("causal"), "GPT"),
        (Settings("prefix"), "prefix language model"),
        (Settings("window"), "Mistral"),
        (Settings("prefix", prefix=1), "GPT"),  # the first token is seen by all anyway
        (Settings("prefix", prefix=8), "BERT"),
        (Settings("window", window=8), "GPT"),
        (Settings("window", window=1), "No model"),
        (Settings("causal", words=1, padding=0), "BERT"),  # one token: every pattern is the same
    ],
)
def test_a_pattern_is_named_by_what_it_is(chosen, name):
    assert re.match(rf"(A )?{name}|Models for long texts .* {name}", models(chosen))


def test_the_words_count_and_warn():
    told = summary(Settings("causal", row=2), mask_of(Settings("causal", row=2)))
    assert told == "Row 3, “cat”, sees 3 of 8: my, small, cat. 33 of 64 pairs are allowed (52%)."
    left = Settings("causal", side="start")
    told = summary(left, mask_of(left))
    assert "Row 1, “<pad>”, sees nothing." in told and "Empty: rows 1, 2." in told and "zeros" in told
    window = Settings("window", window=2, padding=2)
    assert "Empty: row 8." in summary(window, mask_of(window))
    open_ = Settings("all", hidden=False)
    assert "Leak: in 12 of these pairs" in summary(open_, mask_of(open_))
    causal = Settings("causal", hidden=False)
    assert "Leak" not in summary(causal, mask_of(causal))  # padding lies in the future of every word


def test_the_alt_text_says_every_row():
    chosen = Settings("window", window=2, words=3, padding=1, side="start")
    assert describe(chosen, mask_of(chosen)).endswith(
        "By position from 1: “<pad>” sees nothing; “my” sees 2; “small” sees 2–3; “cat” sees 3–4."
    )


# ---- the controls


def test_every_control_moves_the_mask(builder):
    moves = [("pattern", "prefix"), ("prefix", 5), ("pattern", "window"), ("window", 2), ("words", 9)]
    moves += [("padding", 4), ("side", "start"), ("hidden", False)]
    seen = {builder.pane.value}
    for name, value in moves:
        builder.controls[name].value = value
        assert getattr(builder.settings, name) == value
        seen.add(builder.pane.value)
    assert len(seen) == len(moves) + 1 and builder.message.value == ""


def test_a_control_without_effect_is_switched_off(builder):
    def off():
        return {name for name, control in builder.controls.items() if control.disabled}

    found = {}
    for pattern in PATTERNS.values():
        builder.controls["pattern"].value = pattern
        found[pattern] = off()
    both = {"prefix", "window"}
    assert found == {"all": both, "causal": both, "prefix": {"window"}, "window": {"prefix"}}
    builder.controls["padding"].value = 0
    assert "side" in off()


def test_the_row_stays_within_a_shorter_sentence(builder):
    builder.steps.slider.value = 8
    assert builder.settings.row == 7 and "Row 8, “&lt;pad&gt;”" in builder.pane.value
    builder.controls["words"].value = 1
    builder.controls["padding"].value = 0
    assert builder.settings.row == 0 and builder.steps.next.disabled and builder.message.value == ""
    builder.controls["words"].value = 4
    builder.steps.next.click()
    assert builder.settings.row == 1 and "Row 2, “small”" in builder.pane.value


def test_an_error_is_told_and_the_picture_stays(builder, monkeypatch):
    before = builder.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[MaskBuilder.__module__], "mask_of", lambda _: 1 / 0)
        builder.controls["words"].value = 4
    assert "ZeroDivisionError" in builder.message.value and builder.pane.value == before
    builder.controls["words"].value = 5
    assert builder.message.value == "" and builder.settings.words == 5


def test_one_output_carries_the_widget_and_the_picture(builder):
    bundle = builder.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert "the past (causal): 33 of 64 pairs allowed" in bundle["text/plain"]
    assert re.match(r'<img alt="[^"]+" style="max-width:100%" src="data:image/png', bundle["text/html"])
    assert not re.search(r"https?:|<script", bundle["text/html"] + builder.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert mask_builder() is None
    assert capsys.readouterr().out == ""
