"""Building executes, stores and replaces whole files; --check notices whatever is out of date."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import LESSON, make

from course_utils import claims
from course_utils.authoring import AuthoringError
from course_utils.authoring.build import build, stale
from course_utils.authoring.notebooks import Text, find_texts

BUILT = ("notebooks/04_tiny.ipynb", "solutions/04_tiny.ipynb", "exercises/04_tiny.ipynb")


@pytest.fixture(scope="module")
def built(tmp_path_factory, registry) -> Path:
    """The tiny repository with everything built; not to be changed."""
    root = make(tmp_path_factory.mktemp("built"))
    said = []
    for text in find_texts(root):
        assert build(text, say=said.append) == []
    assert said[0].startswith("notebooks/04_tiny.ipynb: 4 cells in ")
    assert said[1].startswith("solutions/04_tiny.ipynb and exercises/04_tiny.ipynb: 5 cells in ")
    return root


@pytest.fixture
def copied(built, tmp_path) -> Path:
    """The built repository, free to be changed."""
    return shutil.copytree(built, tmp_path / "course")


def outputs(path: Path) -> list[dict]:
    return [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]


def findings(root: Path) -> list[str]:
    return [finding for text in find_texts(root) for finding in stale(text)]


def test_what_was_built_is_up_to_date(built):
    assert findings(built) == []
    files = {path.relative_to(built).as_posix() for path in built.rglob("*.ipynb")}
    assert files == set(BUILT)


def test_outputs_are_stored_without_widgets_progress_and_machine(built):
    lesson = built / "notebooks" / "04_tiny.ipynb"
    banner, before, figure, after, claim, error = outputs(lesson)
    assert "device" in banner["text"][0]
    assert (before["text"], after["text"]) == (["a line\n"], ["another line\n"])
    assert "a dot" in figure["data"]["text/html"][0]
    assert claim["data"]["text/plain"] == ["claim 04.1 | holds: True | Two and two are four. | measured: 4"]
    assert error["ename"] == "TypeError"
    text = lesson.read_text()
    assert "widget-view" not in text and "progress" not in "".join(map(str, outputs(lesson)))
    assert str(built) not in text and "iopub" not in text
    [entry] = claims.read([lesson])
    assert entry == claims.Claim("04.1", "Two and two are four.", True, "4")


def test_building_again_gives_the_same_files_but_for_the_scale(copied):
    [text] = find_texts(copied, [str(copied / "solutions" / "04_tiny.py")])
    before = [path.read_text() for path in (text.built, text.exercise)]
    build(text, scale="full", say=str)
    assert "scale: full" in "".join(outputs(text.built)[0]["text"])  # the kernel was told
    assert "metadata differ (course)" in stale(text)[0]  # what is committed is built at class scale
    for path, old in zip((text.built, text.exercise), before, strict=True):
        now = json.loads(path.read_text().replace('"scale": "full"', '"scale": "class"'))
        now["cells"][1]["outputs"] = json.loads(old)["cells"][1]["outputs"]  # the banner names the scale
        assert json.dumps(now) == json.dumps(json.loads(old))


def edit(name: str, old: str, new: str):
    """A change of a file that the check has to notice."""

    def change(root: Path) -> None:
        path = root / name
        content = path.read_text(encoding="utf-8")
        assert old in content
        path.write_text(content.replace(old, new, 1), encoding="utf-8")

    return change


def edit_cell(name: str, tag: str, **changes):
    def change(root: Path) -> None:
        tree = json.loads((root / name).read_text(encoding="utf-8"))
        [cell] = [cell for cell in tree["cells"] if tag in cell["metadata"].get("tags", [])]
        cell.update(changes)
        (root / name).write_text(json.dumps(tree), encoding="utf-8")

    return change


def remove(name: str):
    return lambda root: (root / name).unlink()


LESSON_TEXT, SOLUTION_TEXT = "notebooks/04_tiny.py", "solutions/04_tiny.py"
ERROR = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}


@pytest.mark.parametrize(
    ("change", "stale_file", "why"),
    [
        (edit(LESSON_TEXT, "2 + 2 ==", "2 * 2 =="), BUILT[0], "source"),
        (edit(LESSON_TEXT, "## What happens", "## What goes on"), BUILT[0], "cell 3 .*source"),
        (
            edit(LESSON_TEXT, "# %% [markdown]\n# ## What", "# %%\n1\n\n# %% [markdown]\n# ## What"),
            BUILT[0],
            "cell 3",
        ),
        (edit(LESSON_TEXT, '# %% tags=["raises-exception"]', "# %%"), BUILT[0], "metadata"),
        (
            edit(LESSON_TEXT, "runtime.by_scale(1)\n", "runtime.by_scale(1)\n\n# %%\n1\n"),
            BUILT[0],
            "6 cells.* 7",
        ),
        (edit("pyproject.toml", "someone/course", "another/course"), BUILT[0], "cell 1 "),
        (edit(BUILT[0], '"scale": "class"', '"scale": "full"'), BUILT[0], "metadata differ .course"),
        (edit(BUILT[0], '"execution_count": 2', '"execution_count": 7'), BUILT[0], "top to bottom"),
        (edit(BUILT[0], '"execution_count": 1', '"execution_count": null'), BUILT[0], "top to bottom"),
        (edit_cell(BUILT[0], "setup", outputs=[ERROR]), BUILT[0], "cell 2 .*error"),
        (edit(BUILT[0], '"name": "stdout"', '"name": "stderr"'), BUILT[0], "would not keep"),
        (edit(BUILT[0], '"holds": true', '"holds": false'), BUILT[0], "does not hold"),
        (edit(BUILT[0], '{\n "cells"', '{\n "cells'), BUILT[0], "broken"),
        (remove(BUILT[0]), BUILT[0], "not there"),
        (edit(SOLUTION_TEXT, "return x + secret", "return 2 * x"), BUILT[1], "source"),
        (edit(BUILT[1], "secret", "hidden"), BUILT[1], "source"),
        (edit(BUILT[1], "04.1 twice: 3 of", "04.1 twice: 0 of"), BUILT[2], "outputs"),
        (remove(BUILT[2]), BUILT[2], "not there"),
        (edit(BUILT[2], "raise NotImplemented", "return NotImplemented"), BUILT[2], "source"),
        (edit(BUILT[2], "04.1 twice: 3 of", "04.1 twice: 0 of"), BUILT[2], "outputs"),
        (edit_cell(BUILT[2], "check:04.1", outputs=[], execution_count=None), BUILT[2], "outputs"),
        (edit(BUILT[2], '"points": 3', '"points": 30'), BUILT[2], "metadata"),
    ],
)
def test_whatever_is_out_of_date_is_named_with_the_mend(copied, change, stale_file, why):
    change(copied)
    found = findings(copied)
    assert found
    assert re.search(rf"{stale_file}.*{why}", found[0]), found
    assert "course build " in found[0] or why == "does not hold"


@pytest.fixture
def failing(copied) -> Text:
    """A lesson that was built, and whose text has since been given a cell that fails (by `fail`)."""
    return find_texts(copied, ["04"])[0]


def fail(text: Text, code: str) -> None:
    # Without the set-up's import of torch, to be quick; it is what fails that matters here.
    source = LESSON.replace('tags=["setup"]\n', 'tags=["setup"]\nruntime = type("R", (), {"start": print})\n')
    source = source.replace('"start": print})', '"start": staticmethod(print)})\nruntime.start("04")')
    text.path.write_text(source.replace("import sys\n", f"import os\n{code}\nimport sys\n"), encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (
            "    \n1 / 0",
            r"04_tiny\.py: cell 4 \(code: 'import os'\) raised ZeroDivisionError: division",
        ),
        ("os._exit(1)", r"cell 4 \(code: 'import os'\) ended the kernel"),
        ("f(", r"cell 4 .* raised SyntaxError"),
    ],
)
def test_a_cell_that_fails_is_named_and_nothing_is_written(failing, code, named):
    before = {path: path.read_bytes() for path in failing.root.rglob("*") if path.is_file()}
    fail(failing, code)
    before[failing.path] = failing.path.read_bytes()
    with pytest.raises(AuthoringError, match=named):
        build(failing, say=pytest.fail)
    assert {path: path.read_bytes() for path in failing.root.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_leaves_everything_as_it_was(failing):
    mark = failing.root / "reached"
    fail(failing, f"open({str(mark.name)!r}, 'w').close(); import time; time.sleep(60)")
    before = failing.built.read_bytes()
    command = [sys.executable, "-c", "from course_utils.cli import app; app()", "build", failing.name]
    process = subprocess.Popen(
        command,
        cwd=failing.root,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    reached = failing.path.parent / mark.name
    while not reached.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert failing.built.read_bytes() == before
    assert sorted(os.listdir(failing.path.parent)) == ["04_tiny.ipynb", "04_tiny.py", "reached"]


def test_a_text_that_breaks_a_rule_is_refused_before_it_runs(repository):
    text = find_texts(repository, ["04"])[0]
    text.path.write_text(LESSON.replace("## What", "### What"), encoding="utf-8")
    with pytest.raises(AuthoringError, match="jumps from level 1 to 3"):
        build(text, say=pytest.fail)
    assert not text.built.exists()
