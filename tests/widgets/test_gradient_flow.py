"""The gradient explorer without a browser: what it shows, and what its controls do."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.probes import GradientFlow
from course_utils.widgets import gradient_explorer, gradient_flow
from course_utils.widgets.gradient_flow import (
    GATED,
    NAMES,
    SKIP,
    GradientExplorer,
    Settings,
    flow_of,
    picture,
    render,
    series_of,
    summary,
)

KINDS = st.sampled_from(list(NAMES))


@pytest.fixture(scope="module")
def still():
    return GradientExplorer().bundle()


@pytest.fixture
def explorer():
    return GradientExplorer()


# ---- what is shown


@pytest.mark.parametrize("kind", ["rnn", "relu"])
@pytest.mark.parametrize("radius", [0.3, 0.6, 0.9, 1.2])
@pytest.mark.parametrize("inputs", [0.1, 0.5, 1.5])
def test_the_fitted_slope_is_near_the_predicted_one(kind, radius, inputs):
    flow = flow_of(Settings(kind, radius=radius, length=60, inputs=inputs))
    assert flow.slope == pytest.approx(flow.predicted, rel=0.1, abs=0.03)


def test_a_larger_scale_carries_more_and_saturation_less():
    slopes = [flow_of(Settings("relu", radius=radius)).slope for radius in (0.5, 1.0, 1.5, 2.0)]
    assert slopes == sorted(slopes) and slopes[0] < 0 < slopes[-1]
    tanh = [flow_of(Settings("rnn", inputs=inputs)).slope for inputs in (0.0, 0.5, 1.5, 3.0)]
    assert tanh == sorted(tanh, reverse=True)
    assert tanh[0] == pytest.approx(np.log(0.9))  # no input: every tanh' is 1


@pytest.mark.parametrize("kind", GATED)
def test_the_gate_bias_keeps_the_gradient(kind):
    closed, opened = (flow_of(Settings(kind, gate_bias=bias)) for bias in (0.0, 4.0))
    assert opened.slope > closed.slope + 0.2
    assert closed.predicted is None and "predicted" not in series_of(closed)


def test_a_relu_does_not_see_the_size_of_its_input():
    one, other = (flow_of(Settings("relu", inputs=inputs)) for inputs in (0.0, 3.0))
    assert np.array_equal(one.norms, other.norms)


def test_the_random_state_of_the_reader_is_left_alone():
    before = torch.get_rng_state()
    flow_of(Settings("lstm"))
    assert torch.equal(before, torch.get_rng_state())


@given(
    KINDS, st.floats(0.2, 2), st.integers(20, 100), st.floats(0, 3), st.floats(-2, 6)
)  # the ends of the sliders
@settings(max_examples=30)
def test_every_setting_gives_a_chart_within_its_frame(kind, radius, length, inputs, bias):
    chosen = Settings(kind, radius, length, inputs, bias)
    flow = flow_of(chosen)
    assert flow.norms.shape == (length + 1,) and (flow.norms > 0).all() and np.isfinite(flow.slope)
    shown = render(chosen, flow)
    points = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", shown)
    assert len(points) > length
    assert all(70 <= float(x) <= 710 and 10 <= float(y) <= 340 for x, y in points)
    assert NAMES[kind] in shown and "nan" not in shown and "inf" not in shown


def test_the_fitted_line_has_the_slope_and_the_predicted_one_starts_at_the_measured():
    flow = flow_of(Settings())
    series = series_of(flow)
    assert list(series) == ["measured", "fitted", "predicted"]
    lags, line = series["fitted"]
    assert lags[0] == SKIP and np.allclose(np.diff(np.log(line)), flow.slope)
    assert abs(np.log(line) - np.log(flow.norms[SKIP:])).max() < 0.2
    assert series["predicted"][1][0] == flow.norms[0]


def test_fading_growth_and_rest_are_said_in_words():
    norms = np.ones(3)
    fades = summary(Settings(length=2), GradientFlow(norms, -np.log(2) / 4, -0.1))
    assert "multiplies the gradient norm by 0.841 (slope −0.173): it halves every 4.0 steps." in fades
    assert "tanh derivatives: 0.905 (slope −0.100) a step." in fades
    grows = summary(Settings("relu", length=2), GradientFlow(norms, np.log(2), 0.0))
    assert "it doubles every 1.0 steps" in grows and "ReLU derivatives" in grows
    assert "it hardly changes" in summary(Settings(length=2), GradientFlow(norms, 0.001, 0.0))
    gated = summary(Settings("lstm", length=2, gate_bias=3.0), GradientFlow(norms, -0.1, None))
    assert "opens the gate that keeps the old state to 95%." in gated and "redicted" not in gated


def test_a_gradient_that_never_comes_back_is_said():
    flow = GradientFlow(np.array([1.0, 0.0, 0.0]), float("nan"), float("-inf"))
    shown = render(Settings("relu", length=2), flow)
    assert "no gradient comes back" in shown and "fitted" not in re.findall(r">(\w+)</text>", shown)


def test_the_alt_text_gives_the_ends_and_the_slopes():
    flow = flow_of(Settings())
    _, alt = picture(Settings(), flow)
    assert f'aria-label="{alt}"' in render(Settings(), flow)
    assert re.match(
        r"Chart of the gradient norm on a log axis against the lag \(steps back from the end\), from 1 at "
        r"lag 0 to \S+ at lag 60, with the fitted and predicted lines\. tanh RNN, recurrent scale "
        r"0\.90: on average each step back multiplies",
        alt,
    )


# ---- the controls


def test_every_control_moves_the_curve(explorer):
    moves = [("radius", 1.2), ("length", 80), ("inputs", 1.0), ("kind", "lstm"), ("gate_bias", 3.0)]
    moves.append(("radius", 0.5))
    seen = {explorer.pane.value}
    for name, value in moves:
        explorer.controls[name].value = value
        assert getattr(explorer.settings, name) == value
        seen.add(explorer.pane.value)
    assert len(seen) == len(moves) + 1
    assert explorer.settings == Settings("lstm", 0.5, 80, 1.0, 3.0) and explorer.message.value == ""


def test_a_control_without_effect_is_switched_off(explorer):
    def off():
        return {name for name, control in explorer.controls.items() if control.disabled}

    found = {}
    for kind in NAMES:
        explorer.controls["kind"].value = kind
        found[kind] = off()
    assert found == {"rnn": {"gate_bias"}, "relu": {"gate_bias", "inputs"}, "gru": set(), "lstm": set()}


def test_an_error_is_told_and_the_curve_stays(explorer, monkeypatch):
    def breaks(settings):
        raise RuntimeError("no <memory>")

    before = explorer.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(gradient_flow, "flow_of", breaks)
        explorer.controls["radius"].value = 1.5
    assert "RuntimeError: no &lt;memory&gt; (test_gradient_flow.py, line " in explorer.message.value
    assert explorer.pane.value == before
    explorer.controls["radius"].value = 1.4
    assert explorer.message.value == "" and explorer.pane.value != before


def test_one_output_carries_the_widget_and_the_picture(still):
    assert set(still) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert still["text/plain"].startswith("Chart of the gradient norm")
    assert re.match(
        r'<img alt="[^"]+" style="max-width:100%" src="data:image/png;base64,', still["text/html"]
    )
    assert "<p>Run this notebook to" in still["text/html"]
    assert not re.search(r"https?:|<script", still["text/html"])


def test_nothing_comes_from_outside(explorer):
    assert not re.search(r"https?:|<script", explorer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert gradient_explorer() is None
    assert capsys.readouterr().out == ""
