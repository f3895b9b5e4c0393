"""The grader inside other systems: a zip for Gradescope (otter's form), a workflow for GitHub Classroom.

Both bring `course grade` to where the student's code runs. In each, `python -m course_utils.grading.export`
turns its results.json into what the system reads.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from course_utils import checks
from course_utils.authoring.files import write
from course_utils.grading import GradingError
from course_utils.grading.grades import Grade
from course_utils.grading.report import read
from course_utils.grading.results import Run, exercises_link, remarks, told
from course_utils.grading.safe import line

ROOT = Path(__file__).parents[2]
SHIPPED = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")

SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image. pip's own settings hold here: with an index of
# PyTorch builds without GPU in PIP_EXTRA_INDEX_URL the image is a third of the size.
set -euo pipefail
cd "$(dirname "$0")"
find_python() {
    for python in python3.13 python3.12 python3.11 python3; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}
if ! find_python >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq python3.12 python3.12-venv || apt-get install -y -qq python3.11 python3.11-venv
fi
"$(find_python)" -m venv venv
venv/bin/python -m pip install --quiet --constraint course/constraints.txt "./course[grade]"
"""

RUN = Template("""\
#!/usr/bin/env bash
# Gradescope runs this for each submission. Everything is graded with the same hidden inputs.
set -euo pipefail
root="$${AUTOGRADER:-/autograder}"
bin="$${COURSE_BIN:-$$root/source/venv/bin}"
work="$$(mktemp -d)"
trap 'rm -rf "$$work"' EXIT
mkdir -p "$$work/class"
cp -a "$$root/submission" "$$work/class/student"
"$$bin/course" grade "$$work/class" --lesson $lesson --seed $seed --workers 1 --out "$$work/out"
"$$bin/python" -m course_utils.grading.export gradescope \\
    "$$work/out/results.json" "$$root/results/results.json"
""")

WORKFLOW = Template("""\
# Written by `course export classroom`. It grades in the student's own repository, where the student can
# change this file, too: take its points as feedback, and grade for the record on a machine of yours.
name: Autograding Tests
on:
  - push
  - repository_dispatch
permissions:
  checks: write
  actions: read
  contents: read
jobs:
  run-autograding-tests: # the reporter looks for a job of this name
    runs-on: ubuntu-latest
    if: github.actor != 'github-classroom[bot]'
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
        with:
          path: repository
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install the course
        run: python -m pip install --quiet "attention-course[grade] @ git+$address@$ref"
      - name: Grade
        id: course
        run: |
          mkdir -p class/student
          find repository -maxdepth 1 -type f -name '*.ipynb' -exec cp -p {} class/student/ ';'
          course grade class --lesson $lesson --out results
          python -m course_utils.grading.export classroom results/results.json >> "$$GITHUB_OUTPUT"
      - name: Keep the feedback
        uses: actions/upload-artifact@v4
        with:
          name: feedback
          path: results/feedback
      - name: Report the points
        uses: classroom-resources/autograding-grading-reporter@v1
        env:
          COURSE_RESULTS: $${{ steps.course.outputs.result }}
        with:
          runners: course
""")


def otter(lesson: str, out: Path, *, seed: int | None = None) -> Path:
    """Writes the zip that Gradescope takes for an autograder; it holds this course's own code.

    Raises:
        GradingError: the lesson has no exercises, or this is no checkout of the course.
    """
    _known(lesson)
    seed = secrets.randbelow(2**31) if seed is None else seed
    path = out / f"autograder-{lesson}.zip"
    out.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "setup.sh", SETUP.encode(), 0o755)
            run = RUN.substitute(lesson=lesson, seed=seed)
            _add(archive, "run_autograder", run.encode(), 0o755)
            for file in _sources():
                _add(archive, f"course/{file.relative_to(ROOT).as_posix()}", file.read_bytes(), 0o644)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def classroom(lesson: str, out: Path, *, ref: str = "main") -> Path:
    """Writes the workflow file for the template repository of a GitHub Classroom assignment.

    `ref` is the branch, tag or commit of the course that grades.

    Raises:
        GradingError: the lesson has no exercises.
    """
    _known(lesson)
    address = exercises_link(lesson).partition("/blob/")[0].partition("/tree/")[0]
    path = out / ".github" / "workflows" / "classroom.yml"
    write(path, WORKFLOW.substitute(lesson=lesson, address=address, ref=ref))
    return path


def _known(lesson: str) -> None:
    try:
        checks.exercises(lesson)
    except LookupError as error:
        raise GradingError(str(error)) from None


def _sources() -> Iterator[Path]:
    if not all((ROOT / name).is_file() for name in SHIPPED):
        raise GradingError(f"{ROOT} is no checkout of the course, whose code belongs into the zip.")
    yield from (ROOT / name for name in SHIPPED)
    for file in sorted((ROOT / "course_utils").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file


def _add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    info = zipfile.ZipInfo(name)  # dated 1980, so that the same course gives the same zip
    info.external_attr = (0o100000 | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


# --- what the systems read ----------------------------------------------------------------------------------


def for_gradescope(grade: Grade, run: Run) -> dict[str, Any]:
    """A submission's results.json of Gradescope: a test an exercise, and a hidden one for the teacher."""
    tests = [
        {
            "name": f"{item.id} {item.title}",
            "score": item.points,
            "max_score": item.out_of,
            "status": "passed" if item.points == item.out_of else "failed",
            "output": told(item),
            "visibility": "visible",
        }
        for item in grade.items
    ]
    teacher = [f"Hidden inputs: seed {run.seed}.", *run.isolation, *remarks(grade)]
    tests.append({"name": "For the teacher", "output": "\n".join(teacher), "visibility": "hidden"})
    plain = {name: "text" for name in ("output_format", "test_output_format", "test_name_format")}
    output = "\n".join(line(note) for note in grade.notes)
    return {"tests": tests, "output": output, "stdout_visibility": "hidden", **plain}


def for_classroom(grade: Grade, run: Run) -> dict[str, Any]:
    """What GitHub Classroom's reporter reads of a runner: tests with the points of each."""
    tests = [
        {
            "name": f"{item.id} {item.title}",
            "status": "pass" if item.points == item.out_of else "fail",
            "score": item.points,
            "message": told(item),
        }
        for item in grade.items
    ]
    status = "pass" if grade.points == run.out_of else "fail"
    return {"version": 3, "status": status, "max_score": run.out_of, "tests": tests}


def main(system: str, results: str, out: str = "") -> None:
    """Turns the results.json of one submission into `system`'s form."""
    (grade, *others), run = read(Path(results))
    if others:
        raise GradingError(f"{results} holds {len(others) + 1} submissions; one is expected here.")
    if system == "gradescope":
        Path(out).write_text(json.dumps(for_gradescope(grade, run), indent=1), encoding="utf-8")
    else:
        packed = base64.b64encode(json.dumps(for_classroom(grade, run)).encode()).decode()
        print(f"result={packed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
