"""The head viewer without a browser: what it shows, and what its controls do."""

import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_maps import MAPS, SOURCE, TARGET

from course_utils import figures
from course_utils.models.transformer import Transformer
from course_utils.widgets import head_viewer
from course_utils.widgets.head_viewer import (
    KINDS,
    MEAN,
    HeadViewer,
    describe,
    look_at,
    render,
    summary,
    view_of,
    weights_of,
)


@pytest.fixture
def viewer():
    return HeadViewer(MAPS, SOURCE, TARGET)


def random_maps(layers, heads, source, target, seed=0):
    generator = np.random.default_rng(seed)

    def rows(*shape):
        return generator.dirichlet(np.full(shape[-1], 0.3), shape[:-1])

    one = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    return [{kind: rows(heads, *shape) for kind, shape in one.items()} for _ in range(layers)]


# ---- what is shown


def test_a_row_in_words_is_what_the_maps_hold():
    view = view_of(MAPS, SOURCE, TARGET)
    assert (view.kind, view.layer, view.head) == ("cross", 1, MEAN)
    view = look_at(view, layer=0, head=1, row=1)
    assert summary(view).startswith(
        "Cross, layer 1, head 2. Row 2 of 4: the step that writes “blue” looks: 85% on “bleue”, 5% on “la”"
    )
    assert "“blue” looks most at “maison” (0.85)" in describe(look_at(view, layer=1))
    encoder = look_at(view, kind="encoder", head=0, row=3)
    assert "Row 4 of 4: “<eos>” looks: 85% on “<eos>”" in summary(encoder)


def test_the_mean_is_that_of_the_heads():
    view = look_at(view_of(MAPS, SOURCE, TARGET), row=1)
    assert np.allclose(weights_of(view), (MAPS[1]["cross"][0] + MAPS[1]["cross"][1]) / 2)
    assert "mean over heads" in summary(view)


def test_the_decoder_reads_one_word_behind_those_that_it_writes():
    view = look_at(view_of(MAPS, SOURCE, TARGET), kind="decoder")
    assert view.rows == ("the", "blue", "house", "<eos>")
    assert view.columns == ("<bos>", "the", "blue", "house")
    assert "looks: 100% on “<bos>”" in summary(view) and "one behind" in render(view)


def test_the_maps_of_the_course_s_transformer_are_shown():
    torch.manual_seed(0)
    model = Transformer(9, 9, width=8, heads=2, inner=8, layers=2).eval()
    source, target_in = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 4, 5]])
    with torch.no_grad():
        decoded = model._decode(
            target_in, torch.ones(3, 3).tril().bool(), model.encode(source, source > 0), with_weights=True
        )
    maps = [{"decoder": own[0].numpy(), "cross": cross[0].numpy()} for own, cross in decoded.weights]
    view = view_of(maps, ["a", "b", "c"], ["d", "e"])
    assert view.rows == ("d", "e", "<eos>") and view.columns == ("a", "b", "c", "<eos>")


@given(
    heads=st.integers(1, 14), source=st.integers(1, 70), target=st.integers(1, 70),
    kind=st.sampled_from(list(KINDS)), row=st.integers(-3, 99), head=st.integers(MEAN, 20),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_size_is_drawn_within_its_frame(heads, source, target, kind, row, head):
    maps = random_maps(1, heads, source, target)
    view = look_at(view_of(maps, ["<b>mot</b>"] * source, ["y"] * target), kind=kind, row=row, head=head)
    assert 0 <= view.row < len(view.rows) and MEAN <= view.head < heads
    shown = render(view)
    assert shown.count("<image ") == heads + 1 and "<b>" not in shown
    assert shown.count(" rx=") == min(60, len(view.rows))
    assert ("Only the first 60 of" in shown) == (max(len(view.rows), len(view.columns)) > 60)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    places = re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', shown)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)


def test_a_row_beyond_what_is_drawn_is_still_told():
    view = look_at(view_of(random_maps(1, 2, 70, 3), ["s"] * 70, list("abc")), kind="encoder", row=65)
    assert "Row 66 of 70" in summary(view) and "▸" not in render(view)


CROSS = MAPS[0]["cross"]
BAD = [
    ([], "must be a list of dicts of encoder, decoder, cross; the first layer has "),
    ([{"both": CROSS}], r"the first layer has \['both'\]"),
    ([MAPS[0], {"cross": CROSS}], r"layer 2 has maps of \['cross'\], but layer 1 has "),
    ([{"cross": CROSS[:, :, :2]}], r"layer 1, cross: the map has shape \(2, 4, 2\), but \(heads, 4, 3\)"),
    ([{"cross": CROSS[0]}], r"the map has shape \(4, 4\)"),
    ([{"cross": 2 * CROSS}], "layer 1, cross: attention weights are 0 or more and each row sums to 1"),
    ([{"cross": np.nan * CROSS}], "layer 1, cross: attention weights"),
]


@pytest.mark.parametrize(("maps", "told"), BAD)
def test_what_cannot_be_shown_is_named(maps, told):
    with pytest.raises(ValueError, match=told):
        HeadViewer(maps, SOURCE, TARGET)


def test_an_empty_row_looks_at_nothing():
    weights = MAPS[0]["cross"].copy()
    weights[:, 0] = 0
    view = look_at(view_of([{"cross": weights}], SOURCE, TARGET), row=0)
    assert "looks: at nothing" in summary(view) and render(view).count(" rx=") == 3


# ---- the controls


def test_every_control_moves_the_view(viewer):
    moves = [("head", 1), ("layer", 0), ("kind", "encoder"), ("kind", "decoder"), ("head", 0)]
    seen = {viewer.pane.value}
    for name, value in moves:
        getattr(viewer, name).value = value
        assert getattr(viewer.view, name) == value
        seen.add(viewer.pane.value)
    viewer.steps.next.click()
    assert viewer.view.row == 1 and viewer.pane.value not in seen
    assert len(seen) == len(moves) + 1 and viewer.message.value == ""
    assert (viewer.kind.value, viewer.layer.value, viewer.head.value) == ("decoder", 0, 0)


def test_layers_may_have_different_heads_and_sides_different_lengths():
    first, second = random_maps(1, 5, 9, 4, seed=1)[0], random_maps(1, 2, 9, 4, seed=2)[0]
    viewer = HeadViewer([first, second], list("abcdefghi"), list("wxyz"))
    viewer.layer.value = 0
    viewer.head.value = 4
    viewer.kind.value = "encoder"
    viewer.steps.slider.value = 9
    viewer.layer.value = 1
    assert viewer.view.head == viewer.head.value == 1 and len(viewer.head.options) == 3
    viewer.kind.value = "cross"
    assert (viewer.view.row, viewer.steps.slider.value, viewer.steps.slider.max) == (3, 4, 4)
    assert viewer.message.value == "" and "Cross, layer 2, head 2" in viewer.pane.value


def test_an_error_is_told_and_the_picture_stays(viewer, monkeypatch):
    before = viewer.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[HeadViewer.__module__], "weights_of", lambda _: 1 / 0)
        viewer.head.value = 0
    assert "ZeroDivisionError" in viewer.message.value and viewer.pane.value == before
    viewer.head.value = 1
    assert viewer.message.value == "" and viewer.view.head == 1


def test_one_output_carries_the_widget_and_the_picture(viewer):
    bundle = viewer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["text/plain"].startswith(
        "Cross: target to source, layer 2. Attention matrix, cross, layer 2, head 1"
    )
    assert re.match(r'<img alt="[^"]+" style="max-width:100%" src="data:image/png', bundle["text/html"])
    assert not re.search(r"https?:|<script", bundle["text/html"] + viewer.pane.value)
    assert figures.MAX_WORDS == 60  # as the docstring says


def test_outside_ipython_it_is_quiet(capsys):
    assert head_viewer(MAPS, SOURCE, TARGET) is None
    assert capsys.readouterr().out == ""
