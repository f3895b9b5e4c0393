"""What was graded, and what a class of grades says: the run, the words for an outcome, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from course_utils import checks
from course_utils.checks.engine import PartVerdict
from course_utils.grading.grades import Grade, ItemGrade, Outcome
from course_utils.grading.safe import line, printable

PACKAGE = "attention-course"

OUTCOMES: dict[Outcome, str] = {
    "full": "all points",
    "partial": "some points",
    "wrong": "not right yet",
    "unanswered": "not answered yet",
    "missing": "no answer was found",
    "stopped": "stopped: out of time",
    "died": "the process that ran it ended",
    "unreadable": "the file could not be read",
}
TROUBLED = ("stopped", "died")
LOW = 0.5  # of the points: who earned less is one to look at


@dataclass(frozen=True)
class Asked:
    """An exercise as the course sets it."""

    id: str
    title: str
    points: int


@dataclass(frozen=True)
class Run:
    """What a report says of the grading itself."""

    lesson: str
    exercises: tuple[Asked, ...]
    seed: int  # of the hidden inputs: the same seed gives the same grades
    hidden: int = 0  # how many sets of hidden inputs
    strong: bool = True  # does the isolation hold that the guide promises?
    isolation: tuple[str, ...] = ()  # in words
    seconds: float = 0.0
    link: str = ""  # to the exercises, for the students
    version: str = ""

    @classmethod
    def of(cls, lesson: str, *, seed: int, **others: Any) -> Run:
        """The run of a lesson ("04"), its exercises read from the course; `others` are further fields."""
        asked = tuple(Asked(e.id, e.title, e.points) for e in checks.exercises(lesson))
        return cls(lesson, asked, seed, **{"link": exercises_link(lesson), "version": _version()} | others)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Run:
        """The run that dataclasses.asdict gave."""
        asked = tuple(Asked(**exercise) for exercise in plain["exercises"])
        return cls(**plain | {"exercises": asked, "isolation": tuple(plain["isolation"])})

    @property
    def out_of(self) -> int:
        return sum(exercise.points for exercise in self.exercises)


def exercises_link(lesson: str) -> str:
    """The public address of a lesson's exercises, or "" where the installed package names none."""
    with suppress(PackageNotFoundError):
        for url in metadata(PACKAGE).get_all("Project-URL") or ():
            label, _, address = url.partition(", ")
            if label == "repository":
                folder = Path(__file__).parents[2] / "exercises"
                name = next((path.name for path in sorted(folder.glob(f"{lesson}_*.ipynb"))), "")
                return f"{address.rstrip('/')}/{'blob' if name else 'tree'}/main/exercises/{name}".rstrip("/")
    return ""


def _version() -> str:
    with suppress(PackageNotFoundError):
        return version(PACKAGE)
    return ""


def complete(grade: Grade, run: Run) -> Grade:
    """The grade with every exercise of the course, in its order; one it does not speak of is missing."""
    items = {item.id: item for item in grade.items}
    return replace(grade, items=tuple(items.get(asked.id) or _missing(asked) for asked in run.exercises))


def _missing(asked: Asked) -> ItemGrade:
    return ItemGrade(asked.id, asked.title, "missing", (PartVerdict("the exercise", 0, asked.points),))


def is_unreadable(grade: Grade) -> bool:
    return bool(grade.items) and all(item.outcome == "unreadable" for item in grade.items)


def remarks(grade: Grade) -> list[str]:
    """What a teacher should know of a submission beside its points, a line each."""
    said = list(grade.notes)
    for item in grade.items:
        if item.outcome in ("missing", *TROUBLED):
            said.append(f"{item.id}: {OUTCOMES[item.outcome]}")
        said += [f"{item.id}: {note}" for note in item.notes]
        said += [f"{item.id}: uses {use.name} (line {use.line})" for use in item.shortcuts]
    return [line(remark) for remark in said]


def told(item: ItemGrade) -> str:
    """What a student is told of an exercise, as plain text."""
    said = [OUTCOMES[item.outcome], *item.notes]
    before = None
    for part in item.parts:
        said.append(f"[{'x' if part.points else ' '}] {part.name} ({part.points} of {part.out_of})")
        if part.finding and part.finding == before:
            said.append("The same as above.")
        elif part.finding:
            before = part.finding
            said.append(part.finding.message)
            said += [f"Look at: {part.finding.look}"] if part.finding.look else []
            said += part.example
    return printable("\n".join(said))


def summary(grades: Sequence[Grade], run: Run) -> str:
    """The last line of a run, for people."""
    count = len(grades)
    said = f"{count} submission{'s' * (count != 1)} of lesson {run.lesson}"
    if not count:
        return f"{said}: nothing to grade."
    mean = sum(grade.points for grade in grades) / count
    said += f", {mean:.1f} of {run.out_of} points on average"
    for number, what in (
        (sum(is_unreadable(grade) for grade in grades), "unreadable"),
        (sum(_has_trouble(grade) for grade in grades), "with an answer that was stopped or died"),
        (sum(any(item.shortcuts for item in grade.items) for grade in grades), "with a shortcut to look at"),
        (sum(grade.late for grade in grades), "late"),
    ):
        if number:
            said += f"; {number} {what}"
    return f"{said}."


def _has_trouble(grade: Grade) -> bool:
    return any(item.outcome in TROUBLED for item in grade.items)


def mistakes(grades: Iterable[Grade]) -> list[tuple[str, str, str, int]]:
    """(exercise, named mistake, what it is, how many submissions made it), the most frequent first."""
    words: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for grade in grades:
        made = set()
        for item in grade.items:
            for part in item.parts:
                if part.finding and part.finding.mistake:
                    made.add((item.id, part.finding.mistake))
                    words.setdefault((item.id, part.finding.mistake), part.finding.message)
        counts.update(made)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(id, name, words[id, name], count) for (id, name), count in ranked]


def reasons(grade: Grade, run: Run) -> list[str]:
    """Why a teacher should look at a submission, the weightiest first; empty for most."""
    said = []
    for item in grade.items:
        said += [f"{item.id} uses {use.name} (line {use.line}: {use.source})" for use in item.shortcuts]
        if item.outcome in TROUBLED:
            said.append(f"{item.id}: {OUTCOMES[item.outcome]}")
    missing = [item.id for item in grade.items if item.outcome == "missing"]
    if missing:
        said.append(f"no answer found to {', '.join(missing)}")
    said += grade.notes
    said += [f"{item.id}: {note}" for item in grade.items for note in item.notes]
    if grade.points < LOW * run.out_of:
        said.append("under half of the points")
    if grade.late:
        said.append("late")
    return [line(reason) for reason in said]
