"""What grading finds, as plain values: a Grade is a student's, an ItemGrade that of one exercise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from course_utils.checks.engine import Finding, PartVerdict

# What became of an answer. "missing": no cell or function answers the exercise; "stopped": out of time;
# "died": the process that ran it ended; "unreadable": the whole file could not be read.
Outcome = Literal["full", "partial", "wrong", "unanswered", "missing", "stopped", "died", "unreadable"]


@dataclass(frozen=True)
class Shortcut:
    """A use of something that answers an exercise without solving it; for the teacher to look at."""

    name: str  # what was used, by its full name: "torch.nn.MultiheadAttention"
    line: int  # within the cell, from 1
    source: str  # that line


@dataclass(frozen=True)
class ItemGrade:
    """One exercise of one student. A part that failed on hidden inputs alone has no example."""

    id: str
    title: str
    outcome: Outcome
    parts: tuple[PartVerdict, ...]
    notes: tuple[str, ...] = ()  # for student and teacher, such as "found by its function name"
    shortcuts: tuple[Shortcut, ...] = ()
    seconds: float = 0.0

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    @property
    def out_of(self) -> int:
        return sum(part.out_of for part in self.parts)


@dataclass(frozen=True)
class Grade:
    """One submission. `file` is its path below the folder of submissions, with "/" on every system."""

    student: str
    file: str
    lesson: str
    items: tuple[ItemGrade, ...]
    notes: tuple[str, ...] = ()  # of the whole file: "unreadable: not JSON (line 3)"
    late: bool = False
    seconds: float = 0.0
    account: str = ""  # the number by which Canvas or Moodle knows the student

    @property
    def points(self) -> int:
        return sum(item.points for item in self.items)

    @property
    def out_of(self) -> int:
        return sum(item.out_of for item in self.items)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, with the points added up for whoever reads the file."""
        plain = asdict(self) | {"points": self.points, "out_of": self.out_of}
        for item, read in zip(self.items, plain["items"], strict=True):
            read |= {"points": item.points, "out_of": item.out_of}
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Grade:
        """The grade that `as_dict` gave. Raises KeyError or TypeError for anything else."""
        items = tuple(_item(item) for item in plain["items"])
        keep = ("student", "file", "lesson", "late", "seconds", "account")
        return cls(items=items, notes=tuple(plain["notes"]), **{name: plain[name] for name in keep})


def _item(plain: dict[str, Any]) -> ItemGrade:
    keep = ("id", "title", "outcome", "seconds")
    return ItemGrade(
        parts=tuple(_part(part) for part in plain["parts"]),
        notes=tuple(plain["notes"]),
        shortcuts=tuple(Shortcut(**shortcut) for shortcut in plain["shortcuts"]),
        **{name: plain[name] for name in keep},
    )


def _part(plain: dict[str, Any]) -> PartVerdict:
    finding = plain["finding"] and Finding(**plain["finding"])
    return PartVerdict(**plain | {"finding": finding, "example": tuple(plain["example"])})
