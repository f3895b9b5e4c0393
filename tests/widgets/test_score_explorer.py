"""The score explorer without a browser: what it shows, and what its controls do."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.widgets import score_explorer
from course_utils.widgets.score_explorer import (
    LONGEST,
    QUERY,
    Arrow,
    ScoreExplorer,
    Settings,
    render,
    scores_of,
    summary,
    weights_of,
)

ARROWS = st.builds(Arrow, st.integers(-180, 180), st.floats(0, LONGEST))
SETTINGS = st.builds(
    lambda arrows, turn, stretch: Settings(
        dict(zip([QUERY, "k1", "k2", "k3", "k4", "k5"], arrows, strict=True)), turn, stretch
    ),
    st.lists(ARROWS, min_size=6, max_size=6),
    st.integers(-180, 180),
    st.floats(0, 3),
)  # the ends of the sliders


@pytest.fixture
def explorer():
    return ScoreExplorer()


def with_query(length):
    start = Settings()
    return replace(start, arrows={**start.arrows, QUERY: replace(start.arrows[QUERY], length=length)})


# ---- what is shown


@given(SETTINGS)
@settings(max_examples=40)
def test_the_scores_are_those_of_their_formulas(chosen):
    found = scores_of(chosen)
    mapped = chosen.keys @ chosen.matrix.T
    assert np.allclose(found["dot"], chosen.keys @ chosen.query)
    assert np.allclose(found["general"], mapped @ chosen.query)
    assert np.allclose(found["concat"], np.tanh(chosen.query + mapped).sum(axis=1))
    for scores in found.values():
        assert np.allclose(weights_of(scores), torch.softmax(torch.from_numpy(scores), 0).numpy())


def test_the_matrix_turns_and_stretches():
    assert np.allclose(Settings(turn=90, stretch=2).matrix @ [1, 0], [0, 2])
    assert np.allclose(Settings(turn=90, stretch=2).matrix @ [0, 1], [-2, 0])
    assert np.array_equal(Settings().matrix, np.eye(2))


def test_a_longer_query_sharpens_dot_and_drowns_the_keys_of_concat():
    largest = [
        {n: weights_of(s).max() for n, s in scores_of(with_query(length)).items()} for length in range(5)
    ]
    dot, concat = ([each[name] for each in largest] for name in ("dot", "concat"))
    assert dot == sorted(dot) and dot[-1] > 0.9
    assert concat == sorted(concat, reverse=True) and concat[-1] < 0.25


@given(SETTINGS)
@settings(max_examples=40)
def test_every_setting_is_drawn_within_its_frame(chosen):
    shown = render(chosen)
    assert "nan" not in shown and "inf" not in shown.replace("information", "")
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    points = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", shown) + re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', shown)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    bars = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"[^>]*fill="#', shown)]
    assert len(bars) == 15 and all(sum(bars[i : i + 5]) == pytest.approx(118, abs=0.5) for i in (0, 5, 10))


def test_the_words_name_the_winner_and_the_gap():
    told = summary(Settings(), scores_of(Settings()))
    assert told.startswith("The largest weights are dot: 51% on k2; general: 51% on k2; concat: 37% on k2.")
    assert "a gap of 2.53 by dot, 2.53 by general, and 1.67 by concat" in told
    assert "dot: 20% on every key; general: 20% on every key; concat: 49% on k2" in summary(
        with_query(0.0), scores_of(with_query(0.0))
    )


def test_what_the_matrix_makes_of_keys_is_drawn_where_it_changes_them():
    assert "stroke-dasharray" not in render(Settings())
    assert render(Settings(turn=30)).count("stroke-dasharray") == 5


def test_the_random_state_of_the_reader_is_left_alone():
    before = torch.get_rng_state()
    scores_of(Settings())
    assert torch.equal(before, torch.get_rng_state())


# ---- the controls


def test_every_arrow_is_moved_alone(explorer):
    for number, name in enumerate(Settings().arrows):
        others = {key: arrow for key, arrow in explorer.settings.arrows.items() if key != name}
        explorer.choice.value = name
        arrow = explorer.settings.arrows[name]
        assert (explorer.angle.value, explorer.length.value) == (arrow.angle, arrow.length)
        explorer.angle.value, explorer.length.value = 10 * number, 0.5 * number
        assert explorer.settings.arrows[name] == Arrow(10 * number, 0.5 * number)
        assert others.items() <= explorer.settings.arrows.items()
    assert explorer.message.value == ""


def test_the_matrix_is_moved_and_the_pane_follows(explorer):
    seen = {explorer.pane.value}
    for slider, value in ((explorer.turn, 90), (explorer.stretch, 2.0), (explorer.turn, 0)):
        slider.value = value
        seen.add(explorer.pane.value)
    assert len(seen) == 4
    assert (explorer.settings.turn, explorer.settings.stretch) == (0, 2.0)
    assert explorer.settings.arrows == Settings().arrows


def test_an_error_is_told_and_the_picture_stays(explorer, monkeypatch):
    before = explorer.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[ScoreExplorer.__module__], "scores_of", lambda _: 1 / 0)
        explorer.turn.value = 90
    assert "ZeroDivisionError" in explorer.message.value and explorer.pane.value == before
    explorer.turn.value = 45
    assert explorer.message.value == "" and explorer.settings.turn == 45


def test_one_output_carries_the_widget_and_the_picture(explorer):
    bundle = explorer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["text/plain"].startswith("A longer query makes dot and general sure")
    assert re.match(r'<img alt="[^"]+" style="max-width:100%" src="data:image/png', bundle["text/html"])
    assert not re.search(r"https?:|<script", bundle["text/html"] + explorer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert score_explorer() is None
    assert capsys.readouterr().out == ""
