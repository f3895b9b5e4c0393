"""The position explorer without a browser: what it shows, and what its controls do."""

import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.widgets import position_explorer
from course_utils.widgets.position_explorer import (
    FARTHEST,
    LENGTH,
    MAX_WIDTH,
    PositionExplorer,
    Settings,
    describe,
    encodings_of,
    products_of,
    render,
    summary,
)


@st.composite
def chosen_settings(draw):
    """Any settings that the controls can reach."""
    width = 2 * draw(st.integers(1, MAX_WIDTH // 2))
    return Settings(
        kind=draw(st.sampled_from(["sinusoidal", "rotary"])),
        width=width,
        position=draw(st.integers(0, FARTHEST - 1)),
        distance=draw(st.integers(0, FARTHEST)),
        pair=draw(st.integers(1, width // 2)),
    )


@pytest.fixture
def explorer():
    return PositionExplorer()


# ---- what is shown


@given(chosen_settings())
@settings(max_examples=50)
def test_a_shift_turns_the_pair_and_leaves_the_product(chosen):
    rows = encodings_of(chosen)
    pairs = rows.reshape(LENGTH, -1, 2)[:, chosen.pair - 1].astype(float)
    if chosen.kind == "sinusoidal":
        pairs = pairs[:, ::-1]  # cosine to the right, sine up
    here, there = pairs[chosen.position], pairs[chosen.other]
    turn = chosen.distance * chosen.step
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    assert np.allclose(rotation @ here, there, atol=1e-4)
    expected = products_of(chosen, 0)[chosen.distance]
    assert products_of(chosen)[chosen.other] == pytest.approx(expected, abs=1e-3)


def test_the_first_pair_turns_by_one_radian_and_later_ones_by_less():
    steps = [Settings(width=16, pair=pair).step for pair in range(1, 9)]
    assert steps[0] == 1.0 and steps == sorted(steps, reverse=True)


def test_a_product_at_distance_0_is_that_without_positions():
    assert products_of(Settings(width=32))[8] == pytest.approx(16)  # 16 pairs on the unit circle
    rotary = Settings("rotary", width=32)
    assert products_of(rotary)[8] == pytest.approx(products_of(rotary, 0)[0], abs=1e-4)
    assert products_of(rotary, 20)[8] != pytest.approx(products_of(rotary, 8)[20], abs=0.1)  # -12 is not 12


@given(chosen_settings())
@settings(max_examples=40)
def test_every_setting_is_drawn_within_its_frame(chosen):
    shown = re.sub(r"base64,[^\"]+", "", render(chosen))  # in a picture's own letters anything may stand
    assert "nan" not in shown and shown.count("<image ") == 1
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    points = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", shown) + re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', shown)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    dots = re.search(r'd="([^"]*)"[^>]*stroke="#222222"[^>]*stroke-linecap', shown)[1]
    assert dots.count("M") == (encodings_of(chosen) < 0).sum()


def test_the_numbers_are_said():
    told = summary(Settings())
    assert told.startswith(
        "Pair 3 of 16 turns by 18.1° a position (once around in 19.9), so a shift of 5 turns"
    )
    assert "by 90.6° wherever it starts. PE(8) · PE(13) = 11.78; PE(0) · PE(5) = 11.78." in told
    rotary = summary(Settings("rotary"))
    same = re.search(
        r"\(query at 8\) · \(key at 13\) = (\S+); \(query at 0\) · \(key at 5\) = (\S+)\.$", rotary
    )
    assert same[1] == same[2]


def test_the_alt_text_gives_the_course_and_both_places():
    told = describe(Settings())
    assert told.startswith("Heat strip of sinusoidal encodings: 32 numbers down, positions 0 to 63 across.")
    assert "16.00 with itself, highest 16.00 at 8" in told
    first, second = map(int, re.search(r"at (\d+)° for position 8, at (\d+)° for position 13", told).groups())
    assert (second - first) % 360 == pytest.approx(90.6, abs=1)
    assert "one query turned by rotary positions" in describe(Settings("rotary"))


# ---- the controls


def test_every_control_moves_the_picture(explorer):
    moves = [
        ("position", 20),
        ("distance", 9),
        ("pair", 1),
        ("width", 8),
        ("kind", "rotary"),
        ("position", 3),
    ]
    seen = {explorer.pane.value}
    for name, value in moves:
        explorer.controls[name].value = value
        assert getattr(explorer.settings, name) == value
        seen.add(explorer.pane.value)
    assert len(seen) == len(moves) + 1 and explorer.message.value == ""


def test_a_smaller_width_leaves_fewer_pairs(explorer):
    pair = explorer.controls["pair"]
    pair.value = 16
    explorer.controls["width"].value = 8
    assert (pair.value, pair.max, explorer.settings.pair) == (4, 4, 4)
    explorer.controls["width"].value = 2
    assert (pair.value, explorer.settings.pair, pair.disabled) == (1, 1, True)
    explorer.controls["width"].value = 64
    assert (pair.value, pair.max, pair.disabled) == (1, 32, False)
    assert explorer.settings == replace(Settings(), width=64, pair=1) and explorer.message.value == ""


def test_an_error_is_told_and_the_picture_stays(explorer, monkeypatch):
    before = explorer.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[PositionExplorer.__module__], "sinusoidal", lambda *_, **__: 1 / 0)
        explorer.controls["width"].value = 8
    assert "ZeroDivisionError" in explorer.message.value and explorer.pane.value == before
    explorer.controls["width"].value = 10
    assert explorer.message.value == "" and explorer.settings.width == 10


def test_one_output_carries_the_widget_and_the_picture(explorer):
    bundle = explorer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["text/plain"].startswith("Sinusoidal encodings of width 32. Heat strip of")
    assert re.match(r'<img alt="[^"]+" style="max-width:100%" src="data:image/png', bundle["text/html"])
    assert not re.search(r"https?:|<script", bundle["text/html"] + explorer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert position_explorer() is None
    assert capsys.readouterr().out == ""
