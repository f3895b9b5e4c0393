"""The gate viewer without a browser: what it shows, and what its controls do."""

import re
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.models.recurrent import Gates, Recurrent, forget_bias_, gates_of
from course_utils.widgets import gate_viewer
from course_utils.widgets.gate_viewer import (
    CELL,
    MAX_UNITS,
    GateViewer,
    View,
    read,
    render,
    rows_of,
    step_to,
    summary,
)

INPUTS = {
    "short": torch.randn(5, 3, generator=torch.Generator().manual_seed(1)),
    "long": torch.randn(60, 3, generator=torch.Generator().manual_seed(2)),
}
LABELS = {"short": ["le", "petit", "chat", "<noir>", "dort"], "long": [str(i) for i in range(60)]}


def lstm(hidden=40, bias=1.0):
    layer = Recurrent("lstm", 3, hidden)
    for index, parameter in enumerate(layer.parameters()):
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(index))
    forget_bias_(layer.rnn, bias)
    return layer


def toy(steps, units):
    """A view whose numbers are known: unit u keeps (u + 1) / units, and its cell is u minus the step."""
    keeps = np.tile((np.arange(units) + 1) / units, (steps, 1))
    cell = np.arange(units) - np.arange(steps)[:, None].astype(float)
    gates = Gates(keeps / 2, keeps, cell, keeps / 4, cell, cell)
    return View(tuple(f"w{t}" for t in range(steps)), gates, rows_of(keeps))


@pytest.fixture
def viewer():
    return GateViewer(lstm(), INPUTS, LABELS)


# ---- what is shown


def test_the_gates_are_those_of_the_layer():
    layer = lstm()
    own = gates_of(layer, INPUTS["short"][None])
    for mine, theirs in zip(read(layer, INPUTS["short"]), own, strict=True):
        assert np.allclose(mine, theirs[0].detach().numpy())


@given(st.floats(-4, 6))
@settings(max_examples=20)
def test_the_bias_moves_a_copy_by_what_it_says(shift):
    layer = lstm(bias=0.5)
    before = deepcopy(layer.state_dict())
    moved = read(layer, INPUTS["short"], shift)
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in before.items())
    other = lstm(bias=0.5 + shift)
    assert np.allclose(moved.cell, read(other, INPUTS["short"]).cell, atol=1e-5)


def test_a_sequence_of_another_precision_is_read():
    assert np.allclose(
        read(lstm(), INPUTS["short"].double()).cell, read(lstm(), INPUTS["short"]).cell, atol=1e-6
    )


@given(st.integers(1, 80))
def test_rows_run_from_the_keeper_to_the_forgetter(hidden):
    forget = np.random.default_rng(hidden).random((7, hidden))
    rows = rows_of(forget)
    means = forget.mean(axis=0)[rows]
    assert len(set(rows)) == len(rows) == min(hidden, MAX_UNITS)
    assert (np.diff(means) <= 0).all()
    assert means[0] == forget.mean(axis=0).max()
    assert hidden == 1 or means[-1] == forget.mean(axis=0).min()


def test_the_numbers_of_a_step_are_said():
    told = summary(step_to(toy(steps=4, units=20), 2))
    assert told.startswith(
        "Step 3 of 4, “w2”: the mean forget gate is 0.53; 2 of 20 units keep more than 90%."
    )
    assert "mean enter gate is 0.26, the mean leave gate 0.13; the cells lie between -2 and 17." in told
    assert told.endswith("Of what the first step wrote, the median unit still holds 27.6%.")  # 0.525 ** 2


def test_the_first_step_has_nothing_to_hold_yet_and_a_lost_one_is_said():
    assert "first step" not in summary(toy(4, 20))
    assert "holds less than 0.1%" in summary(step_to(toy(30, 20), 29))


@given(st.integers(1, 70), st.integers(1, 30), st.integers(-5, 100))
@settings(max_examples=30)
def test_any_size_and_position_is_drawn_within_its_frame(steps, units, position):
    view = step_to(toy(steps, units), position)
    shown = render(view)
    assert 0 <= view.position < steps
    assert shown.count("<image ") == 4 and shown.count("▼") == 1 and shown.count('font-weight="bold"') == 1
    dots = re.search(r'd="([^"]*)"[^>]*stroke-linecap', shown)[1]
    assert dots.count("M") == (view.strips[CELL] < 0).sum()
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    assert all(
        0 <= float(x) <= width and 0 <= float(y) <= height
        for x, y in re.findall(r"M([\d.-]+) ([\d.-]+)", shown)
    )


def test_labels_are_escaped_and_cut():
    view = replace(toy(3, 4), labels=("<b>", "anticonstitutionnellement", "c"))
    shown = render(view)
    assert "&lt;b&gt;" in shown and "<b>" not in shown
    assert ">anticonstitut…</text>" in shown


def test_the_note_says_which_units_and_what_was_added():
    assert "All 20 units" in render(toy(4, 20))
    moved = render(replace(toy(4, 50), shift=-2.0))
    assert "24 of the 50 units" in moved and "−2.0 is added to the forget bias of a copy" in moved
    assert "is added" not in render(toy(4, 50))


# ---- the controls


def test_it_opens_on_the_first_step_of_the_first_sequence(viewer):
    assert viewer.view.labels == tuple(LABELS["short"]) and viewer.view.position == 0
    assert (viewer.steps.slider.value, viewer.steps.slider.max, viewer.steps.play.max) == (1, 5, 5)
    assert viewer.steps.previous.disabled and not viewer.steps.next.disabled


def test_slider_buttons_and_play_move_together(viewer):
    viewer.steps.slider.value = 3
    assert viewer.view.position == 2 and "“chat”" in viewer.pane.value and viewer.steps.play.value == 3
    viewer.steps.play.value = 4  # what the browser sends while it plays
    assert viewer.view.position == 3 and viewer.steps.slider.value == 4
    viewer.steps.next.click()
    assert viewer.steps.play.value == viewer.steps.slider.value == 5 and viewer.steps.next.disabled
    viewer.steps.previous.click()
    assert viewer.view.position == 3 and "“&lt;noir&gt;”" in viewer.pane.value


def test_a_longer_and_a_shorter_sequence_fit_the_slider(viewer):
    viewer.choice.value = "long"
    assert (viewer.steps.slider.value, viewer.steps.slider.max, viewer.view.position) == (1, 60, 0)
    viewer.steps.slider.value = 60
    viewer.choice.value = "short"
    assert (viewer.steps.slider.value, viewer.steps.slider.max, viewer.view.position) == (1, 5, 0)
    assert viewer.steps.play.value == 1 and viewer.message.value == ""


def test_the_forget_bias_moves_at_the_same_step(viewer):
    before = deepcopy(viewer.layer.state_dict())
    rows = viewer.view.rows
    viewer.steps.slider.value = 4
    mean = viewer.view.gates.forget.mean()
    viewer.bias.value = 4.0
    assert viewer.view.gates.forget.mean() > mean + 0.1
    assert viewer.view.position == 3 and np.array_equal(viewer.view.rows, rows)
    viewer.bias.value = 0.0
    assert viewer.view.gates.forget.mean() == pytest.approx(mean)
    assert all(torch.equal(viewer.layer.state_dict()[name], value) for name, value in before.items())


def test_a_sequence_of_one_step_leaves_nothing_to_play():
    viewer = GateViewer(lstm(), {"one": INPUTS["short"][:1]}, {"one": ["le"]})
    assert viewer.steps.slider.disabled and viewer.steps.play.disabled and viewer.steps.next.disabled


def test_an_error_in_a_callback_is_told_and_the_picture_stays(viewer):
    before = viewer.pane.value
    viewer.inputs["long"] = torch.zeros(60, 4)
    viewer.choice.value = "long"
    assert "RuntimeError" in viewer.message.value and viewer.pane.value == before
    viewer.choice.value = "short"
    assert viewer.message.value == ""


@pytest.mark.parametrize(
    ("inputs", "labels", "told"),
    [
        ({}, {}, "at least one input"),
        ({"a": torch.zeros(1, 5, 3)}, {"a": ["x"] * 5}, r"'a' has shape \(1, 5, 3\); \(length, input\)"),
        ({"a": torch.zeros(0, 3)}, {"a": []}, r"'a' has shape \(0, 3\)"),
        ({"a": torch.zeros(5, 3)}, {"a": ["x"] * 4}, "'a' has 5 steps, but 4 labels"),
        ({"a": torch.zeros(5, 3)}, {}, "'a' has 5 steps, but no labels"),
    ],
)
def test_what_cannot_be_played_is_named(inputs, labels, told):
    with pytest.raises(ValueError, match=told):
        GateViewer(lstm(), inputs, labels)


def test_another_kind_of_layer_is_refused():
    with pytest.raises(ValueError, match="gates of an LSTM, but this layer is of kind 'gru'"):
        GateViewer(Recurrent("gru", 3, 4), INPUTS, LABELS)


def test_one_output_carries_the_widget_and_the_picture(viewer):
    bundle = viewer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["text/plain"].startswith("Gates of an LSTM while it reads “short”. Heat strips of 24 units")
    assert re.match(
        r'<img alt="[^"]+" style="max-width:100%" src="data:image/png;base64,', bundle["text/html"]
    )
    assert not re.search(r"https?:|<script", bundle["text/html"] + viewer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert gate_viewer(lstm(), INPUTS, LABELS) is None
    assert capsys.readouterr().out == ""
