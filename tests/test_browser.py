"""The widgets in a real browser: JupyterLab on this machine, driven by keyboard only."""

import json
import os
import re
import runpy
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from course_utils.widgets.attention_explorer import Explorer
from course_utils.widgets.cache_explorer import CacheExplorer
from course_utils.widgets.gate_viewer import GateViewer
from course_utils.widgets.gradient_flow import GradientExplorer
from course_utils.widgets.head_viewer import HeadViewer
from course_utils.widgets.mask_builder import MaskBuilder
from course_utils.widgets.position_explorer import PositionExplorer
from course_utils.widgets.score_explorer import ScoreExplorer

ROOT = Path(__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome found"),
]
TOY = ROOT / "tests" / "widgets" / "toy.py"  # a translator whose attention is known
SHOW = """\
from course_utils.widgets import attention_explorer
attention_explorer(translate, [PAIR], source_language="en", target_language="fr")
"""
SHOW_GRADIENT = "from course_utils.widgets import gradient_explorer\ngradient_explorer()"
TOY_LSTM = """\
import torch
from course_utils.models.recurrent import Recurrent, forget_bias_
torch.manual_seed(0)
layer = Recurrent("lstm", 3, 40)
forget_bias_(layer.rnn, 0.0)
inputs = {"short": torch.randn(6, 3), "long": torch.randn(45, 3)}
labels = {"short": "le petit chat noir dort .".split(), "long": [f"w{t}" for t in range(45)]}
"""
SHOW_GATES = "from course_utils.widgets import gate_viewer\ngate_viewer(layer, inputs, labels)"
TOY_MAPS = ROOT / "tests" / "widgets" / "toy_maps.py"  # a Transformer's attention that is known
SHOW_LATER = """\
from course_utils import widgets
widgets.score_explorer()
widgets.mask_builder()
widgets.position_explorer()
widgets.head_viewer(MAPS, SOURCE, TARGET)
widgets.cache_explorer()
"""


def notebook(*sources: str, outputs: list | None = None) -> str:
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": s,
        }
        for i, s in enumerate(sources)
    ]
    cells[-1]["outputs"] = outputs or []
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps(
        {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    )


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab server with its own folders: the folder of notebooks, and the address of one."""
    folder = tmp_path_factory.mktemp("lab")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "RUNTIME", "DATA")}
    settings = {"IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser",
        "--ip=127.0.0.1", f"--port={port}", "--port-retries=0",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={notebooks}", "--allow-root",
    ]  # fmt: skip
    quiet = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True)  # no question about news, no look for updates
    (quiet / "notification.jupyterlab-settings").write_text(
        '{"fetchNews": "false", "checkForUpdates": false}'
    )
    log = folder / "log.txt"
    with log.open("w") as out:
        server = subprocess.Popen(command, env={**os.environ, **own, **settings}, stdout=out, stderr=out)
    try:
        _wait_until_up(server, f"http://127.0.0.1:{port}/api/status?token={token}", log)
        yield notebooks, lambda name: f"http://127.0.0.1:{port}/lab/tree/{name}?token={token}&reset"
    finally:
        server.terminate()
        server.wait(20)


def _wait_until_up(server, address: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.3)


@pytest.fixture
def page():
    """A browser page that records its requests and what its console says in `page.seen`."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.seen = {"requests": [], "console": []}
        page.on("request", lambda request: page.seen["requests"].append(request.url))
        page.on("console", lambda message: page.seen["console"].append(f"{message.type}: {message.text}"))
        page.set_default_timeout(40_000)
        yield page
        browser.close()


def open_notebook(page, address: str) -> None:
    page.goto(address)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.get_by_text("| Idle").wait_for()


def run_all_cells(page) -> None:
    page.locator(".jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()


def show_in_lab(lab, page, name: str, *sources: str) -> None:
    """Open a notebook of these cells, and run it."""
    notebooks, address = lab
    (notebooks / name).write_text(notebook(*sources), encoding="utf-8")
    open_notebook(page, address(name))
    run_all_cells(page)


def lit(page) -> str:
    """The source word that the pane shows as lit most, read from its colour alone."""
    words = page.get_by_role("list", name="source words with their weights").get_by_role("listitem")
    luminance = (
        "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    darkest = min(words.all(), key=lambda word: word.evaluate(luminance))
    return darkest.locator("b").inner_text()


def expect_word(page, number: int, count: int, word: str) -> None:
    """Wait until the pane tells of this target word, and check that the marked word is the same."""
    page.get_by_role("status").filter(has_text=f"Word {number} of {count}, “{word}”").wait_for()
    assert page.locator("[aria-current=true]").inner_text().split()[-1] == word


def focused(page) -> str:
    """What has the keyboard: the role or kind of the control, and its text."""
    kind_and_text = "e => `${e.getAttribute('role') || e.localName} ${e.innerText}`.trim()"
    return page.locator(":focus").evaluate(kind_and_text)


def test_the_explorer_is_used_by_keyboard(lab, page, tmp_path):
    show_in_lab(lab, page, "explorer.ipynb", TOY.read_text(encoding="utf-8"), SHOW)
    expect_word(page, 1, 4, "la")
    assert lit(page) == "the"
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    expect_word(page, 2, 4, "maison")
    assert lit(page) == "house"
    page.screenshot(path=tmp_path / "stepped.png")

    page.keyboard.press("Tab")
    assert focused(page) == "button Previous"
    page.keyboard.press("Tab")
    assert focused(page) == "button Next"
    page.keyboard.press("Enter")
    expect_word(page, 3, 4, "bleue")
    assert lit(page) == "blue"

    page.get_by_label("Or type:").focus()
    page.keyboard.type("The small green house.")
    page.keyboard.press("Enter")
    expect_word(page, 1, 6, "la")
    assert page.get_by_label("Choose:").evaluate("e => e.selectedIndex") == 1  # (your own sentence)
    told = page.get_by_text("Not in the vocabulary: “.”, “green”. Known words include “blue”")
    told.wait_for()
    page.keyboard.press("Tab")
    assert focused(page).startswith("slider")
    page.keyboard.press("ArrowRight")
    expect_word(page, 2, 6, "petite")
    assert lit(page) == "small"
    page.screenshot(path=tmp_path / "typed.png")
    assert page.get_by_role("img", name="Attention over a whole sentence").count() == 0, (
        "the picture shows too"
    )
    nothing_left_the_machine(page)


def number(page, pattern: str) -> float:
    """The number in the sentence that the pane says, once it matches."""
    said = page.get_by_role("status").filter(has_text=re.compile(pattern))
    said.wait_for()
    return float(re.search(pattern, said.inner_text())[1].replace("−", "-"))


def test_the_gradient_explorer_is_used_by_keyboard(lab, page, tmp_path):
    show_in_lab(lab, page, "gradient.ipynb", SHOW_GRADIENT)
    slope = number(page, r"^tanh RNN, recurrent scale 0.90: .*?\(slope (\S+)\): it halves")
    chart = page.get_by_role("img", name="Chart of the gradient norm on a log axis")
    assert chart.evaluate("e => e.localName") == "svg" and chart.bounding_box()["width"] > 500
    drawn = chart.inner_html()
    page.screenshot(path=tmp_path / "opened.png")

    scale, *_, gate_bias = page.get_by_role("slider").all()
    for place in ("0.95", "1.00", "1.05", "1.10"):
        press(page, scale, "ArrowRight")
        number(page, rf"^tanh RNN, recurrent scale {place}: .*?\(slope (\S+)\)")
    faster = number(page, r"^tanh RNN, recurrent scale 1.10: .*?\(slope (\S+)\)")
    assert faster > slope and chart.inner_html() != drawn

    page.get_by_role("button", name="LSTM").focus()
    page.keyboard.press("Enter")
    number(page, r"^LSTM, .*?\(slope (\S+)\).*keeps the old state to 50%")
    gate_bias.focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    kept = number(page, r"^LSTM, .*?\(slope (\S+)\).*keeps the old state to 98%")
    assert kept > -0.1
    page.screenshot(path=tmp_path / "lstm.png")
    nothing_left_the_machine(page)


def test_the_gate_viewer_is_played_by_keyboard(lab, page, tmp_path):
    show_in_lab(lab, page, "gates.ipynb", TOY_LSTM, SHOW_GATES)
    number(page, r"^Step (1) of 6, “le”")
    strips = page.get_by_role("img", name="Heat strips of 24 units over 6 steps")
    assert strips.evaluate("e => e.localName") == "svg"
    bias, steps = page.get_by_role("slider").all()
    steps.focus()
    page.keyboard.press("ArrowRight")
    forget = number(page, r"^Step 2 of 6, “petit”: the mean forget gate is (\S+);")
    page.keyboard.press("Tab")
    assert focused(page) == "button Previous"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    number(page, r"^Step (3) of 6, “chat”")
    page.screenshot(path=tmp_path / "stepped.png")

    bias.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.get_by_text("+2.0 is added to the forget bias of a copy").wait_for()
    assert number(page, r"^Step 3 of 6, “chat”: the mean forget gate is (\S+);") > forget + 0.2

    page.get_by_label("Sequence:").focus()
    for key in ("Space", "ArrowDown", "Enter"):  # open the list, go down, choose
        page.keyboard.press(key)
    number(page, r"^Step (1) of 45, “w0”")
    play = page.locator(".widget-play button, .jupyter-widgets-play button").first
    play.focus()
    page.keyboard.press("Enter")
    number(page, r"^Step ([4-9]|[1-4]\d) of 45, “w")  # it goes on while we look
    page.screenshot(path=tmp_path / "played.png")
    nothing_left_the_machine(page)


def test_the_widgets_of_the_second_half_are_used_by_keyboard(lab, page, tmp_path):
    """All five in one notebook, since a kernel takes its time to start; each in an output of its own."""
    show_in_lab(lab, page, "later.ipynb", TOY_MAPS.read_text(encoding="utf-8"), SHOW_LATER)
    outputs = page.locator(".jp-OutputArea-output")
    outputs.nth(4).get_by_role("status").wait_for()
    assert page.locator(".jp-OutputArea-output img").count() == 0, "a picture shows too"
    uses = (use_scores, use_masks, use_positions, use_heads, use_cache)
    for index, use in enumerate(uses):
        output = outputs.nth(index)
        output.scroll_into_view_if_needed()
        use(page, output)
        output.screenshot(path=tmp_path / f"{use.__name__}.png")
    nothing_left_the_machine(page)


def press(page, control, *keys: str) -> None:
    """Press keys on a control; whoever calls waits for the answer before the next control."""
    control.focus()
    for key in keys:
        page.keyboard.press(key)


def use_scores(page, output) -> None:
    number(output, r"dot: (51)% on k2; general: 51% on k2; concat: 37% on k2")
    angle, length, turn, _ = output.get_by_role("slider").all()
    press(page, length, "End")
    number(output, r"dot: (9\d)% on k2;.* concat: 2\d% on")
    press(page, output.get_by_role("button", name="k5"), "Enter")
    output.get_by_text(re.compile("^[-−]60$")).wait_for()  # the slider has come to its angle
    press(page, angle, *["ArrowRight"] * 6)  # from -60 to -30 degrees
    output.get_by_role("img", name="k5 at -30° of length 1.5").wait_for()
    press(page, turn, "ArrowRight")
    output.get_by_role("img", name="W_a turns a key by 15°").wait_for()


def use_masks(page, output) -> None:
    number(output, r"(48) of 64 pairs")
    press(page, output.get_by_role("button", name="the past (causal)"), "Enter")
    number(output, r"(33) of 64 pairs")
    press(page, output.get_by_role("button", name="start"), "Enter")
    number(output, r"Row 1, “<pad>”, sees nothing.*Empty: rows 1, (2)\.")
    assert "padding_mask(torch.tensor([6]), 8).flip(-1)" in output.locator("pre").inner_text()
    press(page, output.get_by_role("checkbox"), "Space")
    number(output, r"Leak: in (\d+) of these pairs")
    press(page, output.get_by_role("button", name="a window of the past"), "Enter")
    written = output.locator("pre")
    written.filter(has_text="window_mask(8, 3)").wait_for()  # before that, the window's slider is disabled
    _, window, words, *_, row = output.get_by_role("slider").all()
    press(page, window, "ArrowLeft")
    written.filter(has_text="window_mask(8, 2)").wait_for()
    press(page, words, "ArrowRight")
    number(output, r"(\d+) of 81 pairs")
    for place in (2, 3, 4, 5):
        press(page, row, "ArrowRight")
        number(output, rf"Row ({place}), ")
    number(output, r"Row 5, “cat”, sees (2) of 9: small, cat")


def use_positions(page, output) -> None:
    number(output, r"PE\(8\) · PE\(13\) = (\S+);")
    press(page, output.get_by_role("button", name="rotary (turned)"), "Enter")
    width, position, distance, pair = output.get_by_role("slider").all()
    pattern = r"\(query at {}\) · \(key at {}\) = ([−\d.]+[\d])"
    number(output, pattern.format(8, 13))
    for place in (9, 10):
        press(page, position, "ArrowRight")
        number(output, pattern.format(place, place + 5))
    press(page, distance, "ArrowLeft")
    here = number(output, pattern.format(10, 14))
    assert here == number(output, pattern.format(0, 4))
    press(page, pair, "Home")
    number(output, r"^Pair 1 of 16 turns by (57.3)°")
    press(page, width, "Home")
    number(output, r"^Pair 1 of (1) turns")


def use_heads(page, output) -> None:
    number(output, r"^Cross, layer 2, mean over heads\. Row (1) of 4")
    press(page, output.get_by_role("button", name="2", exact=True).last, "Enter")
    press(page, output.get_by_role("slider"), "ArrowRight")
    number(output, r"layer 2, head 2\. Row 2 of 4: the step that writes “blue” looks: (\d+)% on “maison”")
    press(page, output.get_by_role("button", name="1", exact=True).first, "Enter")
    number(output, r"layer 1, head 2\. Row 2 of 4: the step that writes “blue” looks: (\d+)% on “bleue”")
    press(page, output.get_by_role("button", name="decoder: target to target"), "Enter")
    number(output, r"^Decoder, layer 1, head 2\. Row (2) of 4")


def use_cache(page, output) -> None:
    steps, *_, key_heads = output.get_by_role("slider").all()
    for place in (2, 3):
        press(page, steps, "ArrowRight")
        number(output, rf"^Step ({place}) of 9")
    number(output, r"^Step 3 of 9 reads “small” and writes “cat”: (2) of the 3 keys")
    press(page, key_heads, "ArrowLeft")
    number(output, r"all 8 heads would hold .* \((2) times as much\)")
    press(page, key_heads, "End")
    output.get_by_text("64 key heads are more than the 8 heads").wait_for()
    press(page, output.locator(".widget-play button, .jupyter-widgets-play button").first, "Enter")
    number(output, r"^Step ([5-9]) of 9")  # it goes on while we look


def attention_widget():
    toy = runpy.run_path(str(TOY))
    return Explorer(toy["translate"], [toy["PAIR"]], source_language="en", target_language="fr")


def gate_widget():
    made = {}
    exec(TOY_LSTM, made)
    return GateViewer(made["layer"], made["inputs"], made["labels"])


def head_widget():
    toy = runpy.run_path(str(TOY_MAPS))
    return HeadViewer(toy["MAPS"], toy["SOURCE"], toy["TARGET"])


STILL = [
    (attention_widget, "“maison” looks most at “house” (0.80)"),
    (GradientExplorer, "Chart of the gradient norm on a log axis"),
    (gate_widget, "Gates of an LSTM while it reads “short”. Heat strips of 24 units over 6 steps"),
    (ScoreExplorer, "A longer query makes dot and general sure"),
    (MaskBuilder, "the past (causal): 33 of 64 pairs allowed"),
    (PositionExplorer, "Sinusoidal encodings of width 32. Heat strip"),
    (head_widget, "Cross: target to source, layer 2. Attention matrix, cross, layer 2, head 1"),
    (CacheExplorer, "A cache leaves one row of work a step"),
]


def test_without_a_kernel_the_pictures_are_seen(lab, page, tmp_path):
    shells = [widget() for widget, _ in STILL]
    outputs = []
    for shell in shells:
        bundle = shell.bundle()
        del bundle["application/vnd.jupyter.widget-view+json"]  # as `course build` stores it
        outputs.append({"output_type": "display_data", "metadata": {}, "data": bundle})
    notebooks, address = lab
    (notebooks / "built.ipynb").write_text(notebook(SHOW, outputs=outputs), encoding="utf-8")
    open_notebook(page, address("built.ipynb"))

    for shell, (_, seen) in zip(shells, STILL, strict=True):
        picture = page.get_by_role("img", name=seen)
        picture.wait_for()
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("e => e.naturalWidth") > 300
        assert page.get_by_text(shell.invitation).is_visible()
    page.screenshot(path=tmp_path / "built.png")
    nothing_left_the_machine(page)


def nothing_left_the_machine(page) -> None:
    hosts = {
        urlsplit(url).hostname for url in page.seen["requests"] if not url.startswith(("data:", "blob:"))
    }
    assert hosts == {"127.0.0.1"}
    complaints = [
        text for text in page.seen["console"] if re.search(r"^error.*widget|model not found", text, re.I)
    ]
    assert not complaints
