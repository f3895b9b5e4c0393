"""From text to notebook: stamps, stripping, ids, and what is kept of outputs. Nothing here executes."""

import os
import sys
from types import ModuleType, SimpleNamespace

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_output
from tiny import LESSON, PYPROJECT, SOLUTION

from course_utils import runtime
from course_utils.authoring import AuthoringError
from course_utils.authoring.files import write
from course_utils.authoring.notebooks import (
    BEGIN,
    END,
    Text,
    _without_solution,
    address,
    compose,
    cut,
    dumps,
    find_root,
    find_texts,
    load,
    tidy,
)


@pytest.fixture
def lesson(repository) -> Text:
    return Text(repository, repository / "notebooks" / "04_tiny.py")


@pytest.fixture
def solution(repository) -> Text:
    return Text(repository, repository / "solutions" / "04_tiny.py")


def cells(notebook, tag: str) -> list:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def test_composing_is_deterministic_and_gives_a_valid_notebook(lesson, solution):
    for text in (lesson, solution):
        assert dumps(compose(text)) == dumps(compose(text))
        nbformat.validate(compose(text))
        assert compose(text).metadata.kernelspec.name == "python3"
        assert "version" not in compose(text).metadata.language_info


def test_the_badge_links_to_colab_by_the_address_of_pyproject(lesson, solution):
    base = "https://colab.research.google.com/github/someone/course/blob/main"
    assert f"({base}/notebooks/04_tiny.ipynb)" in compose(lesson).cells[0].source
    composed = compose(solution)
    assert f"({base}/solutions/04_tiny.ipynb)" in composed.cells[0].source
    assert f"({base}/exercises/04_tiny.ipynb)" in cut(composed, solution).cells[0].source
    assert "![" not in compose(lesson).cells[0].source  # a picture would be fetched from outside


def test_a_repository_that_colab_cannot_open_gets_a_plain_link(lesson):
    elsewhere = PYPROJECT.replace("github.com", "example.org")
    (lesson.root / "pyproject.toml").write_text(elsewhere, encoding="utf-8")
    assert "(https://example.org/someone/course)" in compose(lesson).cells[0].source


def test_the_setup_cell_is_short_and_keeps_what_the_text_says(lesson, solution):
    for text, start in ((lesson, 'runtime.start("04")'), (solution, 'runtime.start("04", needs="nothing")')):
        [setup] = cells(compose(text), "setup")
        assert setup.source.splitlines()[-1] == f"device = {start}"
        assert len(setup.source.splitlines()) <= 8


@pytest.mark.parametrize("colab", [True, False])
def test_the_setup_cell_installs_on_colab_and_nowhere_else(lesson, monkeypatch, colab):
    called = []
    shell = SimpleNamespace(run_line_magic=lambda *command: called.append(command))
    monkeypatch.setattr(runtime, "start", called.append)
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    [setup] = cells(compose(lesson), "setup")
    exec(TransformerManager().transform_cell(setup.source), {"get_ipython": lambda: shell})
    install = ("pip", "install -q git+https://github.com/someone/course")
    assert called == ([install, "04"] if colab else ["04"])


def test_answers_are_cut_and_everything_else_stays(solution):
    whole = compose(solution)
    for cell in whole.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [new_output("stream", text="04.1 twice: 3 of 3 points\n")], 1
    exercise = cut(whole, solution)
    [answer] = cells(exercise, "exercise:04.1")
    assert answer.source == (
        'def double(x):\n    """Twice x."""\n    raise NotImplementedError("04.1: write your answer here")'
    )
    assert "secret" not in dumps(exercise) and "SOLUTION" not in dumps(exercise)
    assert "Hint 1" in exercise.cells[2].source
    kept = [cell.metadata.tags[-1] for cell in exercise.cells if cell.get("outputs")]
    assert kept == ["check:04.1", "summary"]
    assert all(
        cell.execution_count for cell in exercise.cells if cell.get("outputs")
    )  # or nbval compares nothing
    assert [cell.id for cell in exercise.cells] == [cell.id for cell in whole.cells]
    assert "secret" in dumps(whole)


def test_graders_find_their_cells(solution):
    exercise = cut(compose(solution), solution)
    [answer], [check] = cells(exercise, "exercise:04.1"), cells(exercise, "check:04.1")
    assert answer.metadata.nbgrader == {
        "grade": False, "solution": True, "locked": False, "task": False, "grade_id": "answer-04-1",
        "schema_version": 3,
    }  # fmt: skip
    assert check.metadata.nbgrader == {
        "grade": True, "solution": False, "locked": True, "task": False, "grade_id": "check-04-1",
        "schema_version": 3, "points": 3,
    }  # fmt: skip
    assert answer.metadata.course == {"exercise": "04.1", "role": "answer"}
    assert check.metadata.course == {"exercise": "04.1", "role": "check"}


plain = st.text("abc= ()#", max_size=8)
indentation = st.sampled_from(["", "    ", "        "])


@given(st.lists(plain, max_size=4), indentation, st.lists(plain, max_size=4), st.lists(plain, max_size=4))
def test_cutting_replaces_the_region_and_touches_nothing_around_it(before, indent, answer, after):
    region = [f"{indent}{BEGIN}", *(f"{indent}secret{line}" for line in answer), f"{indent}{END}"]
    cut_source = _without_solution("\n".join([*before, *region, *after]), "04.2").split("\n")
    raised = f'{indent}raise NotImplementedError("04.2: write your answer here")'
    assert cut_source == [*before, raised, *after]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("    ### BEGIN SOLUTION\n", "", "alternate"),
        ("    ### END SOLUTION\n", "", "needs"),
        ("    ### BEGIN SOLUTION\n", "    ### BEGIN SOLUTION\n    ### BEGIN SOLUTION\n", "alternate"),
        (
            "    ### BEGIN SOLUTION\n    secret = x\n    return x + secret\n    ### END SOLUTION\n",
            "    pass",
            "needs",
        ),
        (' tags=["exercise:04.1"]', "", "lacks its tag"),
        (', "check:04.1"', "", "one check cell"),
        ("check:04.1", "check:04.2", "one check cell"),
        ('["nbval-check-output", "summary"]', '["exercise:04.1"]', "needs"),
        ("# <!-- badge -->\n", "", "badge"),
        (' tags=["setup"]', "", "setup"),
        ('start("04"', 'start("05"', "runtime.start"),
        ('# %%\nprint("scratch")', '# %% tags=["setup"]\nprint("scratch")', "setup"),
    ],
)
def test_texts_that_do_not_fit_together_say_what_is_missing(solution, old, new, named):
    assert old in SOLUTION
    solution.path.write_text(SOLUTION.replace(old, new), encoding="utf-8")
    with pytest.raises(AuthoringError, match=named):
        compose(solution)


def test_cell_ids_are_unique_and_outlive_changes_elsewhere(lesson):
    before = [cell.id for cell in compose(lesson).cells]
    lesson.path.write_text(
        LESSON.replace("# %% [markdown]\n# ## What", "# %%\n1\n\n# %%\n1\n\n# %% [markdown]\n# ## What")
    )
    after = [cell.id for cell in compose(lesson).cells]
    assert len(set(after)) == len(after) == len(before) + 2
    assert [id for id in after if id in before] == before


def test_tidying_keeps_what_a_reader_can_use():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "IntSlider()"}
    figure = {"text/html": "<img alt='a' src='data:,'>"}
    path = "File \x1b[32m/anywhere/lib/python3.11/site-packages/torch/nn.py:5\x1b[39m, in f"
    outputs = [
        new_output("stream", name="stdout", text="a"),
        new_output("stream", name="stderr", text="0%|"),
        new_output("stream", name="stdout", text="b"),
        new_output("display_data", view),
        new_output("display_data", view | figure),
        new_output("error", ename="E", evalue="", traceback=[path, "File ~/x/course_utils/a.py:1"]),
    ]
    stream, both, error = kept = tidy(outputs)
    assert stream.text == "ab"
    assert both.data == figure | {"text/plain": "IntSlider()"}
    assert error.traceback == [
        "File \x1b[32msite-packages/torch/nn.py:5\x1b[39m, in f",
        "File course_utils/a.py:1",
    ]
    assert tidy(kept) == kept
    assert (
        len(outputs) == 6 and "application/vnd.jupyter.widget-view+json" in outputs[3].data
    )  # a copy was tidied


@pytest.mark.parametrize("moment", ["write", "replace"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, moment):
    path = tmp_path / "a.ipynb"
    write(path, "old")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    if moment == "replace":
        monkeypatch.setattr(os, "replace", interrupt)
    else:
        monkeypatch.setattr(os, "fdopen", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.ipynb"]
    assert path.read_text() == "old"


def test_texts_are_found_by_lesson_and_by_file(repository, monkeypatch):
    monkeypatch.chdir(repository / "exercises")
    assert find_root() == repository
    names = ["notebooks/04_tiny.py", "solutions/04_tiny.py"]
    for wanted in ([], ["04"], ["4"], ["04", "../solutions/04_tiny.py"]):
        assert [text.name for text in find_texts(repository, wanted)] == names
    for wanted in ("../solutions/04_tiny.py", "../solutions/04_tiny.ipynb"):
        assert [text.name for text in find_texts(repository, [wanted])] == names[1:]
    with pytest.raises(AuthoringError, match=r"'09'.*\(04\)"):
        find_texts(repository, ["09"])


def test_a_misplaced_repository_or_text_is_named(tmp_path, repository):
    (repository / "notebooks" / "tiny.py").touch()
    with pytest.raises(AuthoringError, match=r"notebooks/tiny\.py.*NN_slug"):
        find_texts(repository)
    elsewhere = tmp_path / "empty" / "notebooks"
    elsewhere.mkdir(parents=True)
    with pytest.raises(AuthoringError, match="no text"):
        find_texts(elsewhere.parent)
    (elsewhere.parent / "pyproject.toml").write_text('[project]\nname = "x"\n')
    with pytest.raises(AuthoringError, match="no address"):
        address(elsewhere.parent)


def test_outside_a_repository_the_way_in_is_said(tmp_path):
    with pytest.raises(AuthoringError, match="cd"):
        find_root(tmp_path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"cells": [\n{"a"', "line 2"),
        (b"[1]", "not a notebook"),
        (b"{}", "not a notebook"),
        (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": ["x"]}', "not a notebook"),
        (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{}]}', "not a notebook"),
        (b"\xff\xfe", "cannot be read"),
        (None, "is not there"),
    ],
)
def test_damaged_notebooks_are_named_and_a_way_out_is_said(tmp_path, content, named):
    path = tmp_path / "mine.ipynb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuthoringError, match=rf"mine\.ipynb.*{named}"):
        load(path)
