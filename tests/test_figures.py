"""The pictures: what their alt texts say is what the numbers are, and what they draw can be read."""

import io
import re
import subprocess
import sys
from html import unescape
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from PIL import Image

from course_utils import figures

SOURCE, TARGET = ["la", "maison", "bleue"], ["the", "blue", "house"]
WEIGHTS = np.array(
    [[0.9, 0.05, 0.03, 0.02], [0.1, 0.15, 0.7, 0.05], [0.0, 0.8, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]]
)
GOLD = {(0, 0), (2, 1), (1, 2)}
QUALITY = {
    "fixed vector": [(7.5, 90, 87, 93), (25, 25, 22, 29), (45, 13, 10, 16)],
    "with attention": [(7.5, 99, 98, 99.5), (25, 96, 94, 97), (45, 88, 84, 91)],
}
LONG = ["mot"] * 75
GATE = np.linspace(0, 1, 4 * 75).reshape(4, 75)  # (units, steps)
BEAM = [
    [("a", -0.5, 0, True), ("the", -1.0, 0, True), ("some", -3.0, 0, False)],
    [("cat", -1.5, 1, True), ("<eos>", -2.0, 0, True)],
    [("<eos>", -1.6, 0, True)],
]
EVERY_FIGURE = {
    "lines": lambda: figures.lines.build(
        {"a": ([1, 2, 3], [1, 10, 100]), "b": ([1, 3], [5, 5])},
        xlabel="step",
        ylabel="loss (nats)",
        yscale="log",
    ),
    "curve": lambda: figures.curve.build([1, 2], {"a": [3, 4]}, xlabel="lag (tokens)", ylabel="norm"),
    "quality": lambda: figures.quality_by_length.build(QUALITY, title="BLEU by length"),
    "matrix": lambda: figures.attention_matrix.build(WEIGHTS, SOURCE, TARGET, gold=GOLD, possible={(0, 1)}),
    "gold alone": lambda: figures.attention_matrix.build(None, SOURCE, TARGET, gold=GOLD),
    "long": lambda: figures.attention_matrix.build(np.eye(75), LONG, LONG, gold={(i, i) for i in range(75)}),
    "side by side": lambda: figures.attention_matrices.build(
        [
            {"weights": WEIGHTS, "source": SOURCE, "target": TARGET, "title": "the model"},
            {"weights": None, "source": SOURCE, "target": TARGET, "gold": GOLD, "title": "gold"},
        ],
        title="Beside the gold alignment",
    ),
    "forcing": lambda: figures.forcing_diagram.build(["the", "blue", "house"], ["the", "old", "house"]),
    "beam": lambda: figures.beam_tree.build(BEAM),
    "word": lambda: figures.word_weights.build([0.6, 0.3, 0.1], SOURCE, "house", entropy=1.295),
    "bottleneck": lambda: figures.bottleneck_diagram.build(
        SOURCE, LONG, width=256, results=("BLEU 90", "BLEU 13")
    ),
    "strips": lambda: figures.heat_strips.build(
        {"forget gate": GATE, "cell": 3 * GATE - 1}, LONG, signed=["cell"], title="Two strips"
    ),
    "lstm": lambda: figures.lstm_diagram.build(),
    "transformer": lambda: figures.transformer_diagram.build(),
    "norm orders": lambda: figures.norm_orders_diagram.build(),
    "cache": lambda: figures.cache_diagram.build(["<bos>", *TARGET]),
    "gru": lambda: figures.gru_diagram.build(),
    "step": lambda: figures.attention_diagram.build([0.1, 0.7, 0.2], SOURCE, "house", previous="blue"),
    "unrolled": lambda: figures.unrolled_diagram.build(SOURCE),
    "way back": lambda: figures.unrolled_diagram.build(SOURCE, norms=[1e-9, 0.02, 0.3, 1.2], loss="u · h"),
    "windows": lambda: figures.windows_diagram.build(10, 4),
    "order": lambda: figures.order_diagram.build(),
    "feeding": lambda: figures.feeding_diagram.build(TARGET),
    "windows on source": lambda: figures.windows_on_source.build(
        {"global": [0.2, 0.5, 0.3], "local-p": [0, 0.6, 0.1]}, SOURCE, centres={"local-p": 1.3}, reach=1
    ),
    "self-attention": lambda: figures.self_attention_diagram.build([0.1, 0.6, 0.3], SOURCE, 2),
    "bars": lambda: figures.bars.build({"no mask": 7, "no tanh": 2}, xlabel="submissions", ylabel="mistake"),
    "upright bars": lambda: figures.bars.build(
        {str(points): points % 4 for points in range(11)},
        xlabel="points",
        ylabel="submissions",
        title="Points of a class",
        upright=True,
    ),
    "shares": lambda: figures.shares.build(
        {
            "04.1 masked softmax": {"full": 20, "some": 4, "none": 9, "empty": 1, "stopped": 2},
            "04.2 additive scores": {"full": 30, "some": 0, "none": 4, "empty": 2, "stopped": 0},
        },
        xlabel="submissions",
        ylabel="exercise",
        title="What became of the answers",
    ),
    "masks": lambda: figures.mask_grids.build(
        {"causal": np.tri(3, dtype=bool), "all": np.ones((3, 3), bool)}, SOURCE
    ),
    "heads": lambda: figures.heads_by_reshape.build(SOURCE, 4, 2),
    "tasks": lambda: figures.tasks_diagram.build(
        {"one": [(SOURCE, ["", "maison", ""], "a")], "two": [(SOURCE, [], "b"), (TARGET, TARGET, "c")]},
        special=["la"],
    ),
    "softmax": lambda: figures.softmax_in_blocks.build(
        [[0.5, -1], [2, 1]], [(0.5, 0, 1.22), (2, 0.223, 1.64)]
    ),
    "timeline": lambda: figures.timeline.build([(2017, "Transformer", "attention"), (2021, "S4", "states")]),
}


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_visible()]


@pytest.fixture(params=EVERY_FIGURE)
def built(request):
    return EVERY_FIGURE[request.param]()


def test_every_figure_is_small_white_and_legible(built):
    figure, _ = built
    data = figures.png(figure)
    assert len(data) < 60_000
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    assert picture.getpixel((0, 0)) == (255, 255, 255)  # white to the edge, for dark pages
    assert 300 < picture.width < 1600
    sizes = [text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()]
    assert min(sizes) >= 7


def test_every_alt_text_is_whole_sentences_without_rounding_noise(built):
    _, alt = built
    assert alt.endswith(".") and len(alt) > 40
    assert not re.search(r"\d\.\d{5,}|nan|None|array|np\.", alt)


def test_the_same_numbers_give_the_same_bytes_whatever_matplotlib_is_set_to():
    figure, alt = EVERY_FIGURE["matrix"]()
    with matplotlib.rc_context(
        {"font.size": 30, "axes.grid": True, "figure.facecolor": "black", "savefig.dpi": 20}
    ):
        again, same_alt = EVERY_FIGURE["matrix"]()
        assert figures.png(again) == figures.png(figure)
    assert alt == same_alt


# ---- showing


def test_outside_ipython_nothing_is_shown(capsys):
    figures.attention_matrix(WEIGHTS, SOURCE, TARGET)
    assert capsys.readouterr() == ("", "")


def test_in_ipython_a_figure_is_shown_once_with_its_alt_text():
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from IPython.utils.capture import capture_output\n"
        "shell = InteractiveShell.instance()\n"
        "with capture_output() as seen:\n"
        "    shell.run_cell('from course_utils import figures; "
        'figures.curve([1, 2], {"<b>": [3, 4]}, xlabel="x", ylabel="y")\')\n'
        "print(repr([output.data for output in seen.outputs]), repr(seen.stdout))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (outputs, printed) = eval(f"({run.stdout.strip().replace('] ', '], ')})")
    assert printed == "" and len(outputs) == 1
    html, plain = outputs[0]["text/html"], outputs[0]["text/plain"]
    alt = re.fullmatch(
        r'<img alt="([^"<>]*)" style="max-width:100%" src="data:image/png;base64,[\w+/=]+">', html
    )[1]
    assert unescape(alt) == plain == figures.curve.build([1, 2], {"<b>": [3, 4]}, xlabel="x", ylabel="y")[1]


def test_importing_figures_leaves_pyplot_alone():
    loaded = "{'matplotlib.pyplot', 'torch'} & {*sys.modules}"
    code = f"import sys, course_utils.figures; sys.exit(len({loaded}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_picture_without_words_is_refused():
    figure, _ = EVERY_FIGURE["curve"]()
    with pytest.raises(ValueError, match="say in words"):
        figures.show(figure, " ")


# ---- curves


def test_quality_by_length_says_who_is_above_whom():
    figure, alt = figures.quality_by_length.build(QUALITY)
    assert (
        "with attention lies above fixed vector at 3 of 3 shared points; the widest gap is 75, at 45." in alt
    )
    assert "fixed vector: 90 at 7.5, 25 at 25, 13 at 45." in alt
    assert "The widest 95% interval of with attention: 84 to 91, at 45." in alt
    assert {"with attention", "fixed vector"} <= set(texts(figure))  # named beside their curves
    looks = {(line.get_marker(), str(line.get_linestyle()), line.get_color()) for line in main_lines(figure)}
    assert len({marker for marker, _, _ in looks}) == len({dashes for _, dashes, _ in looks}) == 2


def main_lines(figure):
    return [line for line in figure.axes[0].lines if line.get_linestyle() != "None"]


def test_a_length_without_sentences_is_left_out():
    empty = (12.5, *[float("nan")] * 3)
    _, alt = figures.quality_by_length.build({"model": [(7.5, 99, 98, 99.5), empty]})
    assert "model: 99 at 7.5." in alt and "nan" not in alt


def test_an_interval_need_not_hold_its_score():
    figure, _ = figures.quality_by_length.build({"model": [(10, 50, 51, 60), (20, 40, 35, 38)]})
    assert figures.png(figure)


@pytest.mark.parametrize(
    ("points", "told"),
    [([(10, 50, 60, 40)], "at length 10: the interval 60 to 40 is upside down"), ([], "no point")],
)
def test_quality_that_cannot_be_drawn_is_named(points, told):
    with pytest.raises(ValueError, match=f"'model'.*{told}"):
        figures.quality_by_length.build({"model": points})


def test_lines_of_unequal_length_are_named():
    with pytest.raises(ValueError, match=r"'loss': x has shape \(2,\) and y \(3,\)"):
        figures.lines.build({"loss": ([1, 2], [1, 2, 3])}, xlabel="x", ylabel="y")
    with pytest.raises(ValueError, match="at least one series"):
        figures.lines.build({}, xlabel="x", ylabel="y")


def test_a_diverged_curve_is_drawn_and_described():
    y = [3.0, 2.0, float("nan"), float("inf")] * 3
    figure, alt = figures.lines.build({"loss": (range(12), y)}, xlabel="step", ylabel="loss")
    assert figures.png(figure) and "lowest 2 at 1" in alt


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=7).map(sorted))
def test_labels_beside_curves_never_overlap(heights):
    placed = figures.curves._spread(heights, gap=0.09)
    assert all(b - a >= 0.09 - 1e-9 for a, b in pairwise(placed))
    assert min(placed) >= 0 and max(placed) <= 1


@pytest.mark.parametrize("name", ["low", "high"])
def test_a_label_stands_beside_the_end_of_its_curve(name):
    series = {"low": ([0, 1], [0.0, 0.0]), "high": ([0, 1], [0.0, 1.0])}
    figure, _ = figures.lines.build(series, xlabel="x", ylabel="y", title="t")
    axes = figure.axes[0]
    label = next(text for text in axes.texts if text.get_text() == name)
    end = axes.transAxes.inverted().transform(axes.transData.transform((1, series[name][1][1])))[1]
    assert abs(label.get_position()[1] - end) < 0.05


# ---- attention matrices


def cells(figure):
    return figure.axes[0].images[0].get_array()


def outlines(figure):
    """(source, target) and line style of every outlined cell."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return {(round(p.get_x() + p.get_width() / 2), round(p.get_y() + p.get_height() / 2)): p for p in patches}


def test_the_matrix_shows_target_rows_source_columns_and_gold():
    figure, alt = EVERY_FIGURE["matrix"]()
    axes = figure.axes[0]
    assert np.array_equal(cells(figure), WEIGHTS)
    assert [label.get_text() for label in axes.get_xticklabels()] == [*SOURCE, "<eos>"]
    assert [label.get_text() for label in axes.get_yticklabels()] == [*TARGET, "<eos>"]
    drawn = outlines(figure)
    assert {link for link, patch in drawn.items() if patch.get_linestyle() in ("-", "solid")} == GOLD
    assert drawn.keys() - GOLD == {(0, 1)}
    assert "“house” looks most at “maison” (0.80)" in alt
    assert "for 3 of 3 linked words" in alt
    assert figure.axes[-1].get_ylabel() == "attention weight"


def test_the_alt_text_counts_misses():
    _, alt = figures.attention_matrix.build(WEIGHTS, SOURCE, TARGET, gold={(0, 0), (0, 1), (0, 2)})
    assert "sure gold link for 1 of 3 linked words" in alt


def test_the_gold_alignment_can_stand_alone():
    figure, alt = EVERY_FIGURE["gold alone"]()
    assert all(patch.get_fill() for patch in outlines(figure).values())
    assert "“house” with “maison”" in alt
    assert len(figure.axes) == 1  # no colour bar where no weight is


def test_more_than_sixty_words_are_cut_and_said():
    figure, alt = EVERY_FIGURE["long"]()
    assert cells(figure).shape == (60, 60)
    for side in ("source", "target"):
        told = f"only the first 60 of 75 {side} words are drawn"
        assert told in alt and any(told in text for text in texts(figure))


def test_matrices_stay_readable_however_many_there_are():
    panel = {"weights": np.eye(20), "source": ["mot"] * 20, "target": ["word"] * 20}
    figure, alt = figures.attention_matrices.build([panel] * 4)
    assert figure.get_figwidth() < 14
    assert all(f"Panel {i}:" in alt for i in (1, 2, 3, 4))
    shown = [axes.yaxis.get_tick_params()["labelleft"] for axes in figure.axes[:4]]
    assert shown == [True, False, True, False]  # rows of the same words are named once


@pytest.mark.parametrize(
    ("weights", "gold", "told"),
    [
        (WEIGHTS[:, :2], (), r"shape \(4, 2\) .* do not fit 3 source words: give 2 words"),
        (WEIGHTS[:2], (), r"do not fit 3 target words"),
        (WEIGHTS[0], (), "two axes|neither empty"),
        (WEIGHTS, {(3, 4)}, r"link \(source 3, target 4\) lies outside 4 source and 4 target words"),
    ],
)
def test_what_does_not_fit_is_named(weights, gold, told):
    with pytest.raises(ValueError, match=told):
        figures.attention_matrix.build(weights, SOURCE, TARGET, gold=gold)


def test_no_panel_is_refused():
    with pytest.raises(ValueError, match="at least one panel"):
        figures.attention_matrices.build([])


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_weight_is_never_lighter(one, other):
    light, dark = (sum(to_rgb(figures.shade(weight))) for weight in sorted((one, other)))
    assert light >= dark - 1e-9


def test_colours_are_told_apart_from_white_and_their_neighbours():
    assert len(set(figures.PALETTE)) == len(figures.PALETTE)
    assert all(figures.contrast(colour, "#ffffff") > 1.9 for colour in figures.PALETTE)
    assert figures.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert all(to_hex(colour).upper() == colour for colour in figures.PALETTE)
    assert figures.contrast(figures.GOLD, "#ffffff") > 3  # an outline must be seen around an empty cell


# ---- one word, and the diagrams


def test_one_word_says_its_largest_weights_and_its_entropy():
    figure, alt = EVERY_FIGURE["word"]()
    assert "“la” 0.60, “maison” 0.30, “bleue” 0.10; together 1.00 of 1." in alt
    assert "entropy 1.29 bits" in alt or "entropy 1.30 bits" in alt
    assert [bar.get_height() for bar in figure.axes[0].patches] == [0.6, 0.3, 0.1]


def test_the_bottleneck_counts_numbers_a_word():
    figure, alt = EVERY_FIGURE["bottleneck"]()
    assert "3 words leave 85 numbers a word, BLEU 90; 75 words leave 3 numbers a word, BLEU 13." in alt
    assert any("85 numbers a word" in text for text in texts(figure))


def test_the_step_has_arrows_as_thick_as_the_weights():
    figure, alt = EVERY_FIGURE["step"]()
    arrows = [p for p in figure.axes[0].patches if isinstance(p, matplotlib.patches.FancyArrowPatch)]
    thick = sorted(arrow.get_arrowstyle().tail_width for arrow in arrows)[-1]
    assert thick == pytest.approx(0.7 + 12 * 0.7)
    assert "the thickest comes from “maison”" in alt
    assert any("after “blue”" in text for text in texts(figure))


def test_a_step_over_many_words_says_what_is_missing():
    figure, alt = figures.attention_diagram.build(np.full(20, 0.05), ["mot"] * 20, "word")
    assert "8 more words are not drawn" in alt and any("8 more words" in text for text in texts(figure))


# ---- heat strips


def test_strips_say_where_they_are_high_and_low():
    _, alt = figures.heat_strips.build(
        {"forget gate": [[0.1, 0.9, 0.5], [0.3, 0.7, 0.5]]}, ["le", "chat", "dort"]
    )
    assert alt == (
        "Heat strips of 2 units over 3 steps, “le” to “dort”. forget gate: 0.1 to 0.9; the mean over units "
        "is highest at step 2 “chat” (0.80) and lowest at step 1 “le” (0.20)."
    )


@pytest.mark.parametrize(
    ("panels", "told"),
    [
        ({}, "no strip to draw"),
        ({"cell": [[0.5, -0.1]]}, "values from -0.1 to 0.5, outside 0 to 1"),
        ({"gate": [[0.5, np.nan]]}, "outside 0 to 1"),
        ({"gate": [[0.5]]}, r"shape \(1, 1\); \(units, steps\) for 2 labels"),
    ],
)
def test_strips_that_cannot_be_drawn_are_named(panels, told):
    with pytest.raises(ValueError, match=told):
        figures.heat_strips.build(panels, ["a", "b"])


def test_a_strip_is_one_pixel_a_cell_and_its_signs_are_told_apart_without_colour():
    values = np.array([[0.0, 0.5, 1.0], [1.0, 1.0, 0.0]])
    pixels = np.asarray(Image.open(io.BytesIO(figures.strip_png(values))).convert("L"), int)
    assert pixels.shape == values.shape and pixels[0, 0] > pixels[0, 1] > pixels[0, 2]
    signed = np.array([[-0.2, 0.4], [2.0, -2.0]])
    figure, _ = figures.heat_strips.build({"cell": signed}, ["a", "b"], signed=["cell"])
    (dots,) = figure.axes[0].lines
    assert set(map(tuple, dots.get_xydata())) == {(0, 0), (1, 1)}  # (step, unit) of what is below 0
    assert figures.strips_key({"cell": signed}, ["cell"]) == [
        "cell: blue above 0, orange with a dot below, from −2 to 2."
    ]


def test_forcing_diagram_names_the_wrong_words():
    _, alt = figures.forcing_diagram.build(["the", "blue", "house"], ["the", "old", "house"])
    assert "reads <bos> the blue house and has to predict the blue house <eos>" in alt
    assert "“old” for “blue”" in alt
    with pytest.raises(ValueError, match="2 right words and 1 said"):
        figures.forcing_diagram.build(["the", "house"], ["the"])


def test_beam_tree():
    _, alt = figures.beam_tree.build(BEAM)
    assert "Step 1: “a” -0.50 kept, “the” -1.00 kept, “some” -3.00 dropped" in alt
    assert "Step 3: “<eos>” -1.60 kept" in alt
    orphan = [*BEAM[:2], [("cat", -1.0, 1, True)]]  # the second of step 2 has ended
    with pytest.raises(ValueError, match="step 3: the parent 1 of 'cat' was not kept"):
        figures.beam_tree.build(orphan)
    with pytest.raises(ValueError, match="at least one continuation"):
        figures.beam_tree.build([[]])


# ---- a network unrolled


def arrows_back(figure):
    """(place of its tip, thickness) of every arrow that points left, from left to right."""
    arrows = figure.findobj(matplotlib.patches.FancyArrowPatch)
    ends = [(arrow.get_arrowstyle(), *arrow._posA_posB) for arrow in arrows if arrow._posA_posB]
    return sorted((tip[0], style.tail_width) for style, start, tip in ends if tip[0] < start[0] - 0.01)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=13))
def test_arrows_back_are_as_thick_as_the_gradient_is_large(norms):
    figure, _ = figures.unrolled_diagram.build(["x"] * (len(norms) - 1), norms=norms)
    widths = np.array([width for _, width in arrows_back(figure)])
    expected = 9 * (np.array(norms) - min(norms)) / (max(norms) or 1)
    np.testing.assert_allclose(widths - widths.min(), expected, atol=1e-9)


def test_the_unrolled_network_says_its_norms():
    _, alt = figures.unrolled_diagram.build(["le", "chat"], norms=[0.001, 0.25, 1], loss="last loss")
    assert "boxes h_0 to h_2" in alt and "leads to the last loss" in alt and "are 0.001, 0.25, 1." in alt
    assert "back" not in figures.unrolled_diagram.build(["le", "chat"])[1]


@settings(max_examples=25)
@given(st.integers(2, 12), st.data())
def test_the_gradient_stays_inside_its_window(length, data):
    window = data.draw(st.integers(1, length - 1))
    figure, alt = figures.windows_diagram.build(length, window)
    assert len(arrows_back(figure)) == window  # from the loss, and between the states of the window
    assert f"only through the last {window};" in alt


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda: figures.unrolled_diagram.build([]), "0 steps cannot be drawn"),
        (
            lambda: figures.tasks_diagram.build({"a": [(SOURCE, ["x"], "")]}),
            "a: 3 words are read and 1 predicted",
        ),
        (lambda: figures.tasks_diagram.build({"a": [([], [], "")]}), "a: 0 words are read"),
        (lambda: figures.softmax_in_blocks.build([[1.0], [2.0]], [(1, 0, 1)]), "2 blocks and 1 states"),
        (lambda: figures.timeline.build([]), "no event to draw"),
        (lambda: figures.unrolled_diagram.build(["x"] * 13), "13 steps cannot be drawn"),
        (lambda: figures.unrolled_diagram.build(["x"], norms=[1]), "1 inputs have 2 states, but 1 norms"),
        (lambda: figures.windows_diagram.build(5, 5), "a window of 5 in 5 steps"),
        (lambda: figures.windows_diagram.build(13, 5), "a window of 5 in 13 steps"),
    ],
)
def test_networks_that_cannot_be_drawn_are_named(draw, told):
    with pytest.raises(ValueError, match=told):
        draw()


# ---- self-attention


def test_a_word_asks_its_sentence():
    figure, alt = figures.self_attention_diagram.build([0.1, 0.6, 0.3], SOURCE, 2)
    assert "The query of “bleue” meets the keys of all words" in alt and "“maison” 0.60" in alt
    values = [
        line.get_linewidth() for line in figure.findobj(matplotlib.lines.Line2D) if line.get_zorder() == 2
    ]
    assert max(values) == pytest.approx(0.7 + 11 * 0.6)  # as thick as the largest weight


@given(st.integers(1, 6), st.integers(1, 6), st.randoms())
def test_a_mask_is_drawn_as_it_is(rows, columns, random):
    mask = np.array([[random.random() < 0.5 for _ in range(columns)] for _ in range(rows)])
    source, target = [f"s{i}" for i in range(columns)], [f"t{i}" for i in range(rows)]
    figure, alt = figures.mask_grids.build({"a mask": mask}, source, target)
    dots = [line for line in figure.findobj(matplotlib.lines.Line2D) if line.get_marker() == "o"]
    assert sorted((line.get_ydata()[0], line.get_xdata()[0]) for line in dots) == sorted(
        zip(*map(list, np.nonzero(mask)), strict=True)
    )
    for word, row in zip(target, mask, strict=True):
        seen = ", ".join(s for s, may in zip(source, row, strict=True) if may) or "nothing"
        assert f"{word}: {seen}" in alt


def test_heads_share_every_number_once_and_the_wrong_cut_gives_them_words():
    figure, alt = figures.heads_by_reshape.build(["a", "b", "c", "d"], 6, 2)
    for axes in figure.axes:
        owners = [text.get_text() for text in axes.texts]
        assert owners.count("A") == owners.count("B") == 12
    assert "first 3 columns of every word" in alt and "which are of a, b alone" in alt


@pytest.mark.parametrize(
    ("draw", "told"),
    [
        (lambda: figures.self_attention_diagram.build([0.5, 0.5], SOURCE, 0), "for 3 words and asking is 0"),
        (lambda: figures.self_attention_diagram.build([1 / 3] * 3, SOURCE, 3), "asking is 3"),
        (lambda: figures.self_attention_diagram.build([1 / 9] * 9, ["x"] * 9, 0), "at most 8"),
        (lambda: figures.mask_grids.build({}, SOURCE), "no mask"),
        (lambda: figures.mask_grids.build({"m": np.ones((3, 3))}, SOURCE), "'m' is float64"),
        (lambda: figures.mask_grids.build({"m": np.ones((2, 3), bool)}, SOURCE), r"of shape \(2, 3\)"),
        (lambda: figures.mask_grids.build({"m": np.ones((17, 17), bool)}, ["x"] * 17), "at most 16"),
        (lambda: figures.heads_by_reshape.build(SOURCE, 5, 2), "5 does not divide into 2 heads"),
    ],
)
def test_self_attention_that_cannot_be_drawn_is_named(draw, told):
    with pytest.raises(ValueError, match=told):
        draw()
