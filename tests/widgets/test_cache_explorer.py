"""The cache explorer without a browser: what it shows, and what its controls do."""

import re
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from course_utils.models.attention import MultiHeadAttention
from course_utils.models.masks import causal_mask
from course_utils.models.transformer import Stack
from course_utils.widgets import cache_explorer
from course_utils.widgets.cache_explorer import (
    BYTES,
    READ,
    CacheExplorer,
    Settings,
    cache_bytes,
    describe,
    multiplications,
    render,
    summary,
)

SIZES = st.sampled_from([(1, 1), (2, 1), (4, 4), (4, 2), (8, 2)])  # heads, key heads
STEPS = range(len(READ))


@pytest.fixture
def explorer():
    return CacheExplorer()


# ---- what is shown


@given(sizes=SIZES, own=st.sampled_from([2, 6]), tokens=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_the_counts_are_those_of_the_course_s_attention(sizes, own, tokens):
    heads, key_heads = sizes
    layer = MultiHeadAttention(heads * own, heads, key_heads=key_heads)
    x = torch.zeros(1, tokens, heads * own)
    chosen = Settings(1, heads, own, key_heads)

    def counted(run):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            run()
        return counter.get_total_flops() / 2  # it counts a multiplication and an addition

    def whole():
        layer(x, layer.remember(x), causal_mask(tokens), with_weights=True)

    memory = layer.remember(x)

    def newest():
        layer.remember(x[:, -1:], tokens - 1)
        layer(x[:, -1:], memory, start=tokens - 1, with_weights=True)

    assert counted(whole) == sum(multiplications(chosen, tokens, cached=False).values())
    assert counted(newest) == sum(multiplications(chosen, tokens, cached=True).values())


@given(sizes=SIZES, layers=st.integers(1, 3), tokens=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_the_bytes_are_those_of_the_course_s_cache(sizes, layers, tokens):
    heads, key_heads = sizes
    stack = Stack(5, width=4 * heads, heads=heads, inner=4, layers=layers, key_heads=key_heads)
    cache = stack(torch.zeros(1, tokens, dtype=torch.int64), causal_mask(tokens)).cache
    numbers = sum(tensor.numel() for tensor in cache)
    assert cache_bytes(Settings(layers, heads, 4, key_heads), tokens) == BYTES * numbers


def test_a_cache_leaves_one_row_and_the_first_step_as_it_is():
    chosen = Settings()
    for tokens in range(1, 30):
        without, cached = (multiplications(chosen, tokens, kind) for kind in (False, True))
        assert {name: tokens * count for name, count in cached.items()} == without


@pytest.mark.parametrize("step", STEPS)
def test_every_step_is_drawn_as_it_is(step):
    chosen = Settings(step=step)
    shown, tokens = render(chosen), step + 1
    without, cached = 2 * tokens + tokens * (tokens + 1) // 2, 2 + tokens
    assert shown.count(">●<") == without + cached
    assert shown.count(">×<") == tokens * step // 2
    assert shown.count(">✓<") == 2 * step
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', shown).groups())
    places = re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', shown)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)
    assert f"all {tokens} keys and values and all {tokens**2} scores" in describe(chosen)


def test_the_table_adds_up():
    shown = render(replace(Settings(), step=3, layers=1, heads=1, own=16, key_heads=1))
    rows = re.findall(
        r"<th scope=\"row\"[^>]*>([^<]*)</th><td[^>]*>([\d,]+)</td><td[^>]*>([\d,]+)</td>", shown
    )
    numbers = {name: (int(a.replace(",", "")), int(b.replace(",", ""))) for name, a, b in rows}
    together = numbers.pop("together")
    assert numbers["scores q · k"] == (4 * 4 * 16, 4 * 16) and len(numbers) == 5
    assert together == tuple(map(sum, zip(*numbers.values(), strict=True)))


def test_the_numbers_are_said():
    told = summary(Settings(layers=32, heads=32, own=128, key_heads=8, step=8))
    assert told.startswith(
        "Step 9 of 9 reads “table” and writes “<eos>”: 8 of the 9 keys and values come from"
    )
    assert "60.5 billion multiplications without a cache, 12.1 billion with it (5.0 to 1)" in told
    assert (
        "1.18 MB now, and 537 MB at 4,096 tokens, where a cache of all 32 heads would hold 2.15 GB (4 "
        in told
    )
    first = summary(Settings())
    assert "the cache is empty, one is new" in first and "(1.0 to 1)" in first and "all 8 heads" not in first


# ---- the controls


def test_slider_buttons_and_play_step(explorer):
    explorer.steps.slider.value = 3
    assert explorer.settings.step == 2 and "reads “small” and writes “cat”" in explorer.pane.value
    explorer.steps.play.value = 4
    explorer.steps.next.click()
    assert explorer.settings.step == 4 and explorer.steps.slider.value == 5
    explorer.steps.slider.value = 9
    assert explorer.steps.next.disabled and "writes “&lt;eos&gt;”" in explorer.pane.value


def test_every_size_moves_the_numbers(explorer):
    seen = {explorer.pane.value}
    moves = [("layers", 24), ("heads", 16), ("own", 128), ("key_heads", 4)]
    for name, value in moves:
        explorer.sizes[name].value = value
        assert getattr(explorer.settings, name) == value
        seen.add(explorer.pane.value)
    assert len(seen) == len(moves) + 1 and explorer.message.value == ""


def test_key_heads_never_outnumber_heads(explorer):
    explorer.sizes["key_heads"].value = 32
    assert (explorer.settings.key_heads, explorer.sizes["key_heads"].value) == (8, 8)
    assert "32 key heads are more than the 8 heads" in explorer.message.value
    explorer.sizes["heads"].value = 2
    assert (explorer.settings.key_heads, explorer.sizes["key_heads"].value) == (2, 2)
    assert explorer.message.value == ""


def test_an_error_is_told_and_the_picture_stays(explorer, monkeypatch):
    before = explorer.pane.value
    with monkeypatch.context() as broken:
        broken.setattr(sys.modules[CacheExplorer.__module__], "cache_bytes", lambda *_: 1 / 0)
        explorer.sizes["layers"].value = 2
    assert "ZeroDivisionError" in explorer.message.value and explorer.pane.value == before
    explorer.sizes["layers"].value = 3
    assert explorer.message.value == "" and explorer.settings.layers == 3


def test_one_output_carries_the_widget_and_the_picture(explorer):
    bundle = explorer.bundle()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}
    assert bundle["text/plain"].startswith("A cache leaves one row of work a step. Line chart of million")
    assert re.match(r'<img alt="[^"]+" style="max-width:100%" src="data:image/png', bundle["text/html"])
    assert not re.search(r"https?:|<script", bundle["text/html"] + explorer.pane.value)


def test_outside_ipython_it_is_quiet(capsys):
    assert cache_explorer() is None
    assert capsys.readouterr().out == ""
