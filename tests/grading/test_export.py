"""The exported graders: each generated script runs here in a scratch tree, as far as that goes offline."""

import base64
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from course_utils.checks.engine import Finding, PartVerdict
from course_utils.cli import app
from course_utils.grading import GradingError
from course_utils.grading.export import for_classroom, for_gradescope, main, otter
from course_utils.grading.grades import Grade, ItemGrade, Shortcut
from course_utils.grading.results import Run

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
on_posix = pytest.mark.skipif(os.name != "posix", reason="the exported scripts are for Linux")


@pytest.fixture(scope="module")
def partly_right() -> str:
    """Lesson 04 with 04.2 answered without its tanh, which 04.4 builds on, and 04.5 not answered."""
    notebook = json.loads((ROOT / "solutions" / "04_bahdanau_attention.ipynb").read_text(encoding="utf-8"))
    cells = {cell["metadata"]["course"]["exercise"]: cell for cell in notebook["cells"] if is_answer(cell)}
    source = "".join(cells["04.2"]["source"])
    assert "torch.tanh(" in source
    cells["04.2"]["source"] = source.replace("torch.tanh(", "(")
    head = "".join(cells["04.5"]["source"]).partition("### BEGIN")[0]
    cells["04.5"]["source"] = f"{head}raise NotImplementedError('04.5: write your answer here')"
    return json.dumps(notebook)


def is_answer(cell: dict) -> bool:
    return cell["metadata"].get("course", {}).get("role") == "answer"


def invoke(*arguments: str) -> Path:
    result = CliRunner().invoke(app, ["export", *arguments])
    assert result.exit_code == 0, result.output
    return Path(result.output.strip().removeprefix("Wrote "))


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def graded(tmp_path_factory, partly_right) -> Path:
    """Where the grading step of the workflow for GitHub Classroom ran, on a student's repository."""
    folder = tmp_path_factory.mktemp("classroom")
    job = workflow(folder)["jobs"]["run-autograding-tests"]
    step = next(step for step in job["steps"] if step.get("id") == "course")
    repository = folder / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "04_bahdanau_attention.ipynb").write_text(partly_right, encoding="utf-8")
    (repository / "solved").mkdir()  # no place from which to hand in
    shutil.copy(ROOT / "solutions" / "04_bahdanau_attention.ipynb", repository / "solved")
    run(step["run"], folder, GITHUB_OUTPUT=str(folder / "output"))
    return folder


@pytest.fixture
def gradescope(tmp_path) -> Path:
    """The tree of Gradescope's machine, made from the zip."""
    with zipfile.ZipFile(invoke("otter", "--lesson", "4", "--out", str(tmp_path), "--seed", "11")) as archive:
        for info in archive.infolist():
            place = Path(archive.extract(info, tmp_path / "autograder" / "source"))
            place.chmod(info.external_attr >> 16)
    for folder in ("submission", "results"):
        (tmp_path / "autograder" / folder).mkdir()
    return tmp_path / "autograder"


# ---- Gradescope


@on_posix
def test_run_autograder_grades_what_was_handed_in(gradescope, graded):
    """Everything runs but the grading itself, which `graded` has done for the same notebook."""
    (gradescope / "submission" / "my work.ipynb").write_text("{}")
    (gradescope / "submission" / "helper.py").write_text("import nothing_of_this_is_run")
    tools, log = gradescope / "bin", gradescope / "log"
    tools.mkdir()
    (tools / "course").write_text(
        '#!/usr/bin/env bash\nls "$2/student" >"$LOG"\necho "${@:3:6}" >>"$LOG"\ncp -r "$GRADED" "${@: -1}"\n'
    )
    (tools / "python").write_text(f'#!/usr/bin/env bash\nexec "{sys.executable}" "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    shutil.copy(gradescope / "source" / "run_autograder", gradescope)  # where Gradescope puts it
    variables = {"AUTOGRADER": str(gradescope), "COURSE_BIN": str(tools), "GRADED": str(graded / "results")}
    run("./run_autograder", gradescope, LOG=str(log), **variables)
    listed = ["helper.py", "my work.ipynb", "--lesson 04 --seed 11 --workers 1"]
    assert log.read_text().splitlines() == listed
    results = json.loads((gradescope / "results" / "results.json").read_text(encoding="utf-8"))
    *tests, teacher = results["tests"]
    assert [(test["score"], test["max_score"]) for test in tests] == [(2, 2), (0, 2), (1, 1), (0, 3), (0, 2)]
    assert "tanh" in tests[1]["output"] and "The smallest case that shows it" in tests[1]["output"]
    assert "not answered yet" in tests[4]["output"]
    assert teacher["visibility"] == "hidden" and "Hidden inputs: seed" in teacher["output"]
    assert not [test for test in tests if "seed" in test["output"]]


@on_posix
def test_setup_installs_the_course_that_the_zip_holds(gradescope):
    """With a python that only notes what it is asked for, in the place of one with a network."""
    source, log = gradescope / "source", gradescope / "log"
    fake = gradescope / "bin" / "python3.13"
    fake.parent.mkdir()
    fake.write_text(
        '#!/usr/bin/env bash\necho "$@" >> "$LOG"\n'
        'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
    )
    fake.chmod(0o755)
    script = f'PATH="{fake.parent}:$PATH" "{source}/setup.sh"'
    run(script, gradescope, LOG=str(log))
    asked = log.read_text().splitlines()
    assert asked[-2] == "-m venv venv"
    assert asked[-1].endswith("--constraint course/constraints.txt ./course[grade]")
    shipped = {path.relative_to(source / "course") for path in (source / "course").rglob("*.py")}
    assert shipped == {path.relative_to(ROOT) for path in (ROOT / "course_utils").rglob("*.py")}
    assert (source / "course" / "pyproject.toml").read_bytes() == (ROOT / "pyproject.toml").read_bytes()


def test_the_same_course_gives_the_same_zip_and_another_seed_another(tmp_path):
    first, same, other = (otter("04", tmp_path / name, seed=len(name)) for name in ("a", "b", "cc"))
    assert first.read_bytes() == same.read_bytes() != other.read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["autograder-04.zip"]


def test_gradescope_hides_from_students_what_is_for_the_teacher():
    flagged = ItemGrade(
        "04.1", "x", "full", (PartVerdict("p", 1, 1),), shortcuts=(Shortcut("torch.softmax", 3, "code"),)
    )
    results = for_gradescope(Grade("a", "a.ipynb", "04", (flagged,)), Run("04", (), seed=77))
    shown = [test for test in results["tests"] if test["visibility"] == "visible"]
    assert "torch.softmax" not in json.dumps(shown) and "77" not in json.dumps(shown)
    assert "04.1: uses torch.softmax (line 3)" in results["tests"][-1]["output"]
    assert results["stdout_visibility"] == "hidden" and results["test_output_format"] == "text"


# ---- GitHub Classroom


def workflow(tmp_path: Path, *options: str) -> dict:
    path = invoke("classroom", "--lesson", "04", "--out", str(tmp_path), *options)
    assert path.relative_to(tmp_path).as_posix() == ".github/workflows/classroom.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_is_one_that_the_reporter_finds(tmp_path):
    read = workflow(tmp_path, "--ref", "v1.2")
    assert set(read[True]) == {"push", "repository_dispatch"}  # YAML 1.1 reads the key "on" as true
    job = read["jobs"]["run-autograding-tests"]
    assert read["permissions"]["checks"] == "write"
    grading, report = job["steps"][-3], job["steps"][-1]
    (name,) = report["env"]
    assert name == f"{report['with']['runners']}_results".upper()
    assert report["env"][name] == f"${{{{ steps.{grading['id']}.outputs.result }}}}"
    assert job["steps"][2]["run"].endswith('@v1.2"')


@on_posix
def test_the_grading_step_gives_the_points_of_the_students_notebook(graded):
    key, _, packed = (graded / "output").read_text().strip().partition("=")
    result = json.loads(base64.b64decode(packed))
    assert key == "result" and result["max_score"] == 10 and result["status"] == "fail"
    assert [test["score"] for test in result["tests"]] == [2, 0, 1, 0, 0]
    assert len(list((graded / "results" / "feedback").iterdir())) == 1


def test_a_right_answer_passes_in_classroom():
    full = ItemGrade("04.1", "x", "full", (PartVerdict("p", 2, 2),))
    wrong = ItemGrade("04.2", "y", "wrong", (PartVerdict("p", 0, 1, Finding("no")),))
    result = for_classroom(Grade("a", "a.ipynb", "04", (full, wrong)), Run("04", (), seed=1))
    assert [(test["status"], test["score"]) for test in result["tests"]] == [("pass", 2), ("fail", 0)]


# ---- what goes wrong


@pytest.mark.parametrize("system", ["otter", "classroom"])
def test_a_lesson_that_is_not_there_is_said(tmp_path, system):
    result = CliRunner().invoke(app, ["export", system, "--lesson", "77", "--out", str(tmp_path)])
    assert result.exit_code == 1 and 'no lesson "77"' in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_class_is_no_single_submission(tmp_path):
    from course_utils.grading.report import results_json

    run = Run("04", (), seed=1)
    grades = [Grade(name, name, "04", ()) for name in "ab"]
    (tmp_path / "results.json").write_text(results_json(grades, run, ["feedback/a.html", "feedback/b.html"]))
    with pytest.raises(GradingError, match="2 submissions"):
        main("gradescope", str(tmp_path / "results.json"), str(tmp_path / "out.json"))
