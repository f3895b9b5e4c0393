"""Every rule has a text or an output that breaks it, and the tiny lesson keeps them all."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from tiny import Exercise

from course_utils.authoring import lint as rules
from course_utils.authoring.lint import lint
from course_utils.authoring.notebooks import compose, find_texts, tagged


@pytest.fixture
def texts(repository):
    return find_texts(repository)


def display(data: dict[str, str]):
    return new_output("display_data", data)


def html(content: str):
    return display({"text/html": content})


def path(*parts: str) -> str:
    """A path of some machine; written out it would be one in this file."""
    return "/" + "/".join(parts)


def claim(**changes):
    entry = {"id": "04.1", "lesson": "04", "sentence": "It holds.", "holds": True, "measured": "1"} | changes
    return new_output("display_data", {"text/plain": "…"}, metadata={"claim": entry})


def code(source="1", tags=(), *outputs):
    return new_code_cell(source, metadata={"tags": list(tags)}, outputs=list(outputs))


def test_the_tiny_texts_keep_every_rule(texts):
    assert [lint(compose(text), text) for text in texts] == [[], []]


@pytest.mark.parametrize(
    "cell",
    [
        new_markdown_cell("## A\n### B\n## C\n```python\n# no heading\n```"),
        new_markdown_cell("![a curve that falls](data:image/png;base64,AA==) ![a](figures/b.png)"),
        new_markdown_cell("[a paper](https://arxiv.org/abs/1409.0473), <a href='https://a.org'>a link</a>"),
        new_markdown_cell("input/output, and/or, /tools, a ratio 1/home"),
        code("\n".join("x = 1" for _ in range(22))),
        code("1", ["nbval-check-output"], claim()),
        code("1", [], html("<a href='https://arxiv.org'>paper</a>")),
        code("1", [], html("<img class='x' alt='a dot' src='data:image/png;base64,AA=='>")),
        code(
            "1",
            [],
            display({"text/html": "<img alt='a' src='data:,'>", "image/png": "AA=="}),
        ),
        code("1", ["raises-exception"], new_output("error", ename="E", evalue="", traceback=[])),
    ],
)
def test_what_is_allowed_passes(texts, cell):
    notebook = compose(texts[0])
    notebook.cells.append(cell)
    assert lint(notebook, texts[0]) == []


@pytest.mark.parametrize(
    ("cell", "finding"),
    [
        (new_markdown_cell("# Another"), "level 1"),
        (new_markdown_cell("#### Deep"), "'Deep' jumps from level 2 to 4"),
        (new_markdown_cell("![](a.png)"), "alt text"),
        (new_markdown_cell("<img src='a.png'>"), "alt text"),
        (new_markdown_cell("<img alt=' ' src='a.png'>"), "alt text"),
        (new_markdown_cell("![a](https://a.org/b.png)"), "from outside"),
        (new_markdown_cell("see " + path("home", "someone")), "path of a machine: " + path("home", "s")),
        (code(f"open('{path('tmp', 'x')}')"), "path of a machine"),
        (code("open(r'C:\\Users\\x')"), "path of a machine"),
        (code("\n".join("x = 1" for _ in range(23))), "23 lines"),
        (code("1", ["nbval-chek-output"]), "unknown tag 'nbval-chek-output'"),
        (code("1", ["summary"]), "nbval-check-output"),
        (code("1", ["exercise:04.1"]), "belong under solutions"),
        (code("1", [], html("<img src='data:,'>")), "alt text"),
        (code("1", [], html("<img alt='' src='data:,'>")), "alt text"),
        (code("1", [], html("<script src='https://a.org/b.js'></script>")), "from outside"),
        (code("1", [], html("<img alt='a' src='http://a.org/b.png'>")), "from outside"),
        (code("1", [], html("<img alt='a' src='//a.org/b.png'>")), "from outside"),
        (code("1", [], html("<link rel=stylesheet href=https://a.org/b.css>")), "from outside"),
        (code("1", [], html("<style>@import 'https://a.org/b.css'; a {}</style>")), "from outside"),
        (code("1", [], html("<p style='background: url(https://a.org/b.png)'>")), "from outside"),
        (
            code("1", [], display({"image/png": "AA==", "text/plain": "<Figure>"})),
            "bare image",
        ),
        (code("1", [], new_output("stream", text="saved " + path("root", "x"))), "has an output that names"),
        (code("1", [], claim(holds=False)), "claims 04.1, which does not hold: It holds. (measured: 1)"),
        (code("1", [], claim(id="05.1", lesson="05")), "belongs to lesson 05"),
        (code("1", [], new_output("stream", text="x" * 1_500_000)), "bytes"),
    ],
)
def test_what_breaks_a_rule_is_found_in_its_cell(texts, cell, finding):
    notebook = compose(texts[0])
    notebook.cells.append(cell)
    found = lint(notebook, texts[0])
    assert len(found) == 1 and finding in found[0] and "notebooks/04_tiny.ipynb" in found[0]
    place = f"cell {len(notebook.cells)} ("
    assert place in found[0] or any(word in finding for word in ("level", "bytes", "solutions"))


def test_only_code_cells_carry_tags(texts):
    notebook = compose(texts[0])
    notebook.cells[0].metadata.tags = ["summary"]
    assert any("only code cells carry" in finding for finding in lint(notebook, texts[0]))


def test_a_solution_earns_its_points(texts):
    notebook = compose(texts[1])
    [check] = tagged(notebook, "check:").values()
    for printed, findings in (("04.1 twice: 3 of 3 points", 0), ("04.1 twice: 1 of 3 points", 1), ("hm", 1)):
        check.outputs = [new_output("stream", text=printed)]
        found = lint(notebook, texts[1])
        assert len(found) == findings and all("04.1 does not earn its 3 points" in text for text in found)


@pytest.mark.parametrize(
    ("registered", "finding"),
    [
        ({}, "the registry of checks has []"),
        ({"04.1": Exercise(), "04.2": Exercise(id="04.2")}, "has ['04.1', '04.2']"),
        ({"04.1": Exercise(function="triple")}, "has to define triple"),
    ],
)
def test_the_exercises_are_those_of_the_registry(texts, monkeypatch, registered, finding):
    monkeypatch.setattr(rules, "exercises_of", lambda lesson: registered)
    [found] = lint(compose(texts[1]), texts[1])
    assert finding in found
