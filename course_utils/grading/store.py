"""What was graded so far, on disk: one small JSON a submission, so that an interrupted run goes on.

Each file is written in one step and holds the key of what it was made from: the submission's bytes, the
lesson, the seed, the limits, and the code that judges. Where any of these changed, it counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.authoring.files import write
from course_utils.grading import CELL_SECONDS, HIDDEN, GradingError
from course_utils.grading.collect import Submission

if TYPE_CHECKING:
    from course_utils.grading.grades import Grade

# What decides on points, within course_utils. How results are stored, spread and shown does not.
JUDGING = (
    "questions/*.py", "checks/*.py", "models/*.py", "runtime.py",
    *(f"grading/{name}.py" for name in ("grade", "sheets", "run", "wire", "zygote", "jail", "shortcuts")),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a grade depends on beside the submission, and the folders that no submission may see."""

    lesson: str
    seed: int  # of the hidden inputs
    hidden: int = HIDDEN  # sets of hidden inputs
    cell_seconds: float = CELL_SECONDS
    require_isolation: bool = False
    secret: tuple[str, ...] = ()

    def key(self, content: bytes | None, submission: Submission) -> str:
        """Changes with whatever could change the grade, and with what the grade says of the submission."""
        facts = (
            self.lesson, self.seed, self.hidden, self.cell_seconds, judging_code(),
            submission.student, submission.file, submission.account, submission.late,
            submission.problem, submission.notes,
        )  # fmt: skip
        known = hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass"))
        known.update(b"\0" if content is None else b"\1" + content)
        return known.hexdigest()


@cache
def judging_code() -> str:
    """A fingerprint of the code that decides on points, and of the versions of torch and numpy."""
    package = Path(__file__).parent.parent
    known = hashlib.sha256(f"{version('torch')} {version('numpy')}".encode())
    for pattern in JUDGING:
        for path in sorted(package.glob(pattern)):
            known.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return known.hexdigest()


class Store:
    """The grades below `folder`, the state of a run; opened for one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, submission: Submission, key: str) -> Grade | None:
        """The grade of a submission, if it was made from the same `key`."""
        if not self.holds(submission, key):
            return None
        from course_utils.grading.grades import Grade  # which loads torch

        try:
            plain = json.loads(self._path(submission).read_text(encoding="utf-8"))
            return Grade.from_dict(plain["grade"])
        except (OSError, ValueError, KeyError, TypeError):  # not what this version writes
            return None

    def holds(self, submission: Submission, key: str) -> bool:
        """Is there a grade of a submission that was made from this `key`?"""
        try:
            return json.loads(self._path(submission).read_text(encoding="utf-8"))["key"] == key
        except (OSError, ValueError, KeyError, TypeError):  # not there, or broken
            return False

    def save(self, submission: Submission, key: str, grade: Grade) -> None:
        """Keeps a grade; whoever looks, whenever this stops, finds the old one or the new one."""
        plain = {"key": key, "grade": grade.as_dict()}
        write(self._path(submission), json.dumps(plain, indent=1, allow_nan=False) + "\n")

    def seed(self, wanted: int | None, *, fresh: bool = False) -> int:
        """The seed of the hidden inputs: the wanted one, else that of the run before, else a new one.

        It is on disk before the first grade, so that a run which is cut off goes on with it.
        """
        path = self.folder / "run.json"
        before: Any = None
        with suppress(OSError, ValueError, TypeError, KeyError):
            before = json.loads(path.read_text(encoding="utf-8"))["seed"]
        if wanted is None:
            known = type(before) is int and before >= 0 and not fresh
            wanted = before if known else secrets.randbelow(2**31)
        if wanted != before:
            write(path, json.dumps({"seed": wanted}) + "\n")
        return wanted

    def _path(self, submission: Submission) -> Path:
        """By a hash, since the names of students may be alike to a file system, or no names for files."""
        name = repr((submission.student, submission.file, submission.account))
        return self.folder / f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


@contextmanager
def opened(out: Path) -> Iterator[Store]:
    """The store below a folder of results, made where it is not there.

    Raises:
        GradingError: it cannot be written, or another process is grading into it.
    """
    folder = out / "state"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        raise GradingError(f"{folder} cannot be written: {error.strerror}. Choose another --out.") from None
    with lock:
        _lock(lock, out)
        for left in folder.glob(".*.json.*"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
        yield Store(folder)


def _lock(file: Any, out: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two runs at once would do the work twice, and lose none of it
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system lets go of it, however a process ends
    except OSError:
        raise GradingError(f"another `course grade` is writing to {out}. Wait for it, or end it.") from None
