"""nbgrader's own commands take the course's notebooks: released, and right answers told from none.

They run where the command `nbgrader` is to be found, which the course itself does not need:

    python -m venv nb && nb/bin/pip install nbgrader
    PATH=$PWD/nb/bin:$PATH python -m pytest tests/authoring/test_nbgrader.py
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils import checks

ROOT = Path(__file__).parents[2]
COMMAND = shutil.which("nbgrader")
NAMES = sorted(path.name for path in (ROOT / "solutions").glob("*.ipynb"))

pytestmark = pytest.mark.skipif(COMMAND is None, reason="there is no command nbgrader here")


@pytest.fixture(scope="module")
def nbgrader(tmp_path_factory):
    """Runs nbgrader in a course's folder, its kernels being of this interpreter."""
    folder = tmp_path_factory.mktemp("nbgrader")
    kernel = folder / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": start, "display_name": "Python 3", "language": "python"})
    )
    environment = os.environ | {"JUPYTER_PATH": str(folder / "jupyter"), "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        return subprocess.run(
            [COMMAND, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def released(nbgrader):
    """What nbgrader makes of the solutions of all lessons, by the name of the notebook."""
    source = nbgrader.folder / "source" / "all"
    source.mkdir(parents=True)
    for name in NAMES:
        shutil.copy(ROOT / "solutions" / name, source)
    made = nbgrader("generate_assignment", "all")
    assert made.returncode == 0, made.stderr
    release = nbgrader.folder / "release" / "all"
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in release.glob("*.ipynb")}


def marked(notebook):
    """{grade_id: cell} of the cells that nbgrader knows of."""
    cells = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    return {cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in cells}


def test_nbgrader_releases_what_the_course_releases(released):
    """The same cells with the same marks and points, the answers cut at the same place."""
    assert sorted(released) == NAMES != []
    for name, release in released.items():
        exercises = json.loads((ROOT / "exercises" / name).read_text(encoding="utf-8"))
        ours, theirs = marked(exercises), marked(release)
        assert ours.keys() == theirs.keys() and len(ours) == 2 * len(checks.exercises(name[:2]))
        for id, cell in ours.items():
            known, meant = theirs[id]["metadata"]["nbgrader"], cell["metadata"]["nbgrader"]
            assert {name: known[name] for name in meant} == meant
            mine, other = "".join(cell["source"]), "".join(theirs[id]["source"])
            if id.startswith("answer"):
                assert mine.partition("raise NotImplementedError")[0].rstrip() == (
                    other.partition("# YOUR CODE HERE")[0].rstrip()
                )
                assert "SOLUTION" not in other
            else:
                assert mine == other
        points = [theirs[f"check-{e.id.replace('.', '-')}"] for e in checks.exercises(name[:2])]
        assert [cell["metadata"]["nbgrader"]["points"] for cell in points] == [
            exercise.points for exercise in checks.exercises(name[:2])
        ]


def test_nbgrader_validates_right_answers_alone(nbgrader, released):
    name = next(name for name in NAMES if name.startswith("04"))
    shutil.copy(ROOT / "solutions" / name, nbgrader.folder / "right.ipynb")
    shutil.copy(ROOT / "exercises" / name, nbgrader.folder / "untouched.ipynb")
    assert "Success!" in nbgrader("validate", "right.ipynb").stdout
    for notebook in ("untouched.ipynb", f"release/all/{name}"):
        assert "FAILED ON 5 CELL(S)" in nbgrader("validate", notebook).stdout
