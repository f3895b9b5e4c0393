"""The files that a graded class gets: tables for people and for Canvas and Moodle, JSON, JUnit XML, pages.

    grades.csv       a row a student, a column an exercise
    canvas.csv       for Canvas's import of a gradebook         moodle.csv    for a Moodle grading worksheet
    results.json     everything, and what is needed to reproduce it: `read` gives it back
    junit.xml        for whatever reads test reports
    feedback/*.html  a page a student
    class.html       a page for the teacher

Points possible come from the course (`Run`), whatever a submission says, and every grade has its row.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from course_utils.authoring.files import write as write_file
from course_utils.grading import pages
from course_utils.grading.grades import Grade, ItemGrade
from course_utils.grading.results import OUTCOMES, Run, complete, remarks, told
from course_utils.grading.safe import cell, file_names, line


def write(grades: Sequence[Grade], out: Path, *, run: Run) -> list[Path]:
    """Writes all files of the report below `out`, each in one step, and returns their paths.

    results.json is written last: where it is there, the rest is. Feedback pages of an earlier report whose
    submission is gone are removed; nothing else in `out` is touched.
    """
    out = Path(out)
    grades = [complete(grade, run) for grade in grades]
    names = [f"feedback/{name}.html" for name in file_names([(g.student, g.file) for g in grades])]
    earlier = _feedback_named(out / "results.json")
    files = {
        "grades.csv": "\ufeff" + grades_csv(grades, run),  # Excel takes UTF-8 for UTF-8 only with this mark
        "canvas.csv": canvas_csv(grades, run),
        "moodle.csv": moodle_csv(grades, run),
        "junit.xml": junit_xml(grades, run),
        **{name: pages.feedback(grade, run) for name, grade in zip(names, grades, strict=True)},
        "class.html": pages.overview(grades, run, names),
        "results.json": results_json(grades, run, names),
    }
    for name, content in files.items():
        write_file(out / name, content)
    for name in earlier - set(names):
        (out / name).unlink(missing_ok=True)
    return [out / name for name in files]


def read(path: Path) -> tuple[list[Grade], Run]:
    """The grades and the run of a results.json. Raises ValueError for any other file."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
        return [Grade.from_dict(grade) for grade in plain["grades"]], Run.from_dict(plain["run"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no results.json of this course: {error!r}") from error


# --- tables -------------------------------------------------------------------------------------------------


def grades_csv(grades: Iterable[Grade], run: Run) -> str:
    ids = [exercise.id for exercise in run.exercises]
    rows: list[list[Any]] = [["student", "file", *ids, "total", "out of", "late", "notes"]]
    for grade in grades:
        points = [item.points for item in grade.items]
        late = "late" if grade.late else ""
        notes = cell("; ".join(remarks(grade)))
        rows.append([cell(grade.student), cell(grade.file), *points, grade.points, run.out_of, late, notes])
    return _csv(rows)


def canvas_csv(grades: Iterable[Grade], run: Run) -> str:
    """What Canvas's gradebook imports: these columns in this order, and a row with the points possible.

    Canvas finds a student by ID, else by SIS Login ID, else by name. The ID is known where the file carries
    Canvas's own name of a submission.
    """
    title = f"Lesson {run.lesson}"
    rows: list[list[Any]] = [
        ["Student", "ID", "SIS Login ID", "Section", title],
        ["    Points Possible", "", "", "", run.out_of],
    ]
    for grade in grades:
        # Canvas takes any row whose first cell has these two words for the row of points possible.
        name = cell(grade.student).replace("Points Possible", "points possible")
        known = "" if _from_moodle(grade) else grade.account
        rows.append([name, known, "" if known else name, "", grade.points])
    return _csv(rows)


def moodle_csv(grades: Iterable[Grade], run: Run) -> str:
    """A grading worksheet of Moodle's assignment activity, which the import of a gradebook reads as well.

    The worksheet's import finds a student by the Identifier ("Participant 1234567"), which is known where the
    file carries Moodle's own name of a submission; the gradebook's maps a column such as Username.
    """
    rows: list[list[Any]] = [
        ["Identifier", "Username", "Grade", "Maximum Grade", "Last modified (grade)", "Feedback comments"]
    ]
    for grade in grades:
        known = grade.account if _from_moodle(grade) else ""
        comment = "; ".join(f"{i.id} {i.title}: {i.points} of {i.out_of}" for i in grade.items)
        name = cell(grade.student)
        rows.append(
            [f"Participant {known}" if known else "", name, grade.points, run.out_of, "-", cell(comment)]
        )
    return _csv(rows)


def _from_moodle(grade: Grade) -> bool:
    return "_assignsubmission_" in grade.file


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


# --- for machines -------------------------------------------------------------------------------------------


def results_json(grades: Sequence[Grade], run: Run, names: Sequence[str]) -> str:
    listed = [grade.as_dict() | {"feedback": name} for grade, name in zip(grades, names, strict=True)]
    return json.dumps({"run": asdict(run), "grades": listed}, indent=1, allow_nan=False) + "\n"


def _feedback_named(path: Path) -> set[str]:
    """The feedback pages that an earlier report wrote."""
    try:
        named = {grade["feedback"] for grade in json.loads(path.read_text(encoding="utf-8"))["grades"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {name for name in named if re.fullmatch(r"feedback/[^./\\]+\.html", str(name))}


def junit_xml(grades: Sequence[Grade], run: Run) -> str:
    """A test suite a submission and a test case an exercise, with the points as properties.

    A wrong answer is a failure; one that was stopped, died or could not be read, an error; one that was not
    given, skipped.
    """
    suites = []
    for grade in grades:
        cases = [_case(grade, item) for item in grade.items]
        suite = ElementTree.Element("testsuite", _named(grade), **_counts(cases), time=f"{grade.seconds:.3f}")
        suite.append(_properties(points=grade.points, out_of=grade.out_of, late=str(grade.late).lower()))
        suite.extend(cases)
        suites.append(suite)
    root = ElementTree.Element("testsuites", name=f"lesson {run.lesson}", time=f"{run.seconds:.3f}")
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _named(grade: Grade) -> dict[str, str]:
    return {"name": line(grade.student), "file": line(grade.file)}


def _case(grade: Grade, item: ItemGrade) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        name=f"{item.id} {line(item.title)}",
        classname=line(grade.student),
        time=f"{item.seconds:.3f}",
    )
    case.append(_properties(points=item.points, out_of=item.out_of, outcome=item.outcome))
    kind = RESULTS.get(item.outcome)
    if kind:
        result = ElementTree.SubElement(case, kind, message=OUTCOMES[item.outcome])
        if kind != "skipped":
            result.set("type", item.outcome)
            result.text = told(item)
    return case


RESULTS = {
    "partial": "failure",
    "wrong": "failure",
    "stopped": "error",
    "died": "error",
    "unreadable": "error",
    "missing": "skipped",
    "unanswered": "skipped",
}


def _counts(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    counts = {"tests": len(cases)}
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[name] = sum(case.find(tag) is not None for case in cases)
    return {name: str(count) for name, count in counts.items()}


def _properties(**values: Any) -> ElementTree.Element:
    properties = ElementTree.Element("properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    return properties
