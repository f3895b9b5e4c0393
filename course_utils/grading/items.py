"""A pytest plugin: a class's submissions as test items, one for each submission and exercise.

    pytest -p course_utils.grading.items --course-grade submissions/

An item passes if it earned all its points. Its points, the points possible and what became of the answer are
its properties, which `--junitxml` writes down. `-n 4` (pytest-xdist) spreads the submissions over processes.
Students' code runs as in `course grade`, in jailed processes of its own, and never in pytest's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from course_utils.grading import GradingError

if TYPE_CHECKING:
    from course_utils.grading.collect import Submission
    from course_utils.grading.grades import Grade
    from course_utils.grading.store import Settings

HERE = Path(__file__)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("course", "grading a class")
    group.addoption("--course-grade", metavar="SUBMISSIONS", help="The folder or zip with the submissions.")
    group.addoption("--course-lesson", metavar="NN", default="", help="By default what most notebooks say.")
    group.addoption("--course-seed", metavar="N", type=int, help="Of hidden inputs. By default a new one.")
    group.addoption(
        "--course-require-isolation", action="store_true", help="Do not start where code cannot be jailed."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """No conftest.py is loaded: one that lies among the submissions would be a student's code."""
    if early_config.known_args_namespace.course_grade:
        early_config.known_args_namespace.noconftest = True


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    source = config.option.course_grade
    if not source:
        return
    here = Path.cwd()
    if Path(source).resolve() in (here, *here.parents, config.rootpath, *config.rootpath.parents):
        raise pytest.UsageError(
            f"run this from a folder outside {source}: pytest takes settings from where it runs, and there a "
            "student could have written them."
        )
    config.args = [str(HERE)]  # pytest itself looks at no file but this one, and the items come from below
    if config.option.course_seed is None:
        config.option.course_seed = secrets.randbelow(2**31)  # xdist hands it to all its processes
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"  # all exercises of a submission in one process, which runs it once


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not config.option.course_grade:
        return []
    from course_utils.grading.jail import probe

    isolation = probe()
    return [
        f"course: hidden inputs drawn by --course-seed {config.option.course_seed}",
        *([] if isolation.strong else ["course: WARNING: what students wrote is not fully isolated"]),
        *(f"course: {word}" for word in isolation.words),
    ]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if parent.config.option.course_grade and file_path == HERE:
        return _Class.from_parent(parent, path=file_path)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.course_grade:
        from course_utils.grading.worker import end_zygote

        end_zygote()


class _Class(pytest.File):
    """All submissions."""

    def collect(self) -> Iterator[_Submission]:
        from course_utils.grading.collect import collect, guess_lesson
        from course_utils.grading.store import Settings

        options = self.config.option
        source, lesson = Path(options.course_grade), options.course_lesson.zfill(2)
        try:
            if not options.course_lesson:
                lesson = guess_lesson(collect(source))
            submissions = collect(source, lesson)
        except GradingError as error:
            raise self.CollectError(str(error)) from None
        settings = Settings(
            lesson,
            options.course_seed,
            require_isolation=options.course_require_isolation,
            secret=(str(source.resolve()),),
        )
        for number, submission in enumerate(submissions):
            # What stands before :: is what xdist takes for a file, and keeps together.
            node = f"{number + 1}. {submission.student}".replace(":", ".")
            yield _Submission.from_parent(
                self, name=node, nodeid=node, submission=submission, settings=settings
            )


class _Submission(pytest.Collector):
    def __init__(self, *, submission: Submission, settings: Settings, **known: Any) -> None:
        super().__init__(**known)
        self.submission, self.settings = submission, settings
        self._grade: Grade | None = None

    def collect(self) -> Iterator[_Item]:
        from course_utils import checks

        try:
            exercises = checks.exercises(self.settings.lesson)
        except LookupError as error:
            raise self.CollectError(f"{error} Name one with --course-lesson.") from None
        for exercise in exercises:
            yield _Item.from_parent(self, name=exercise.id)

    def grade(self) -> Grade:
        """The grade of the submission, which runs when the first of its items asks for it."""
        from course_utils.grading.collect import Unreadable, content
        from course_utils.grading.worker import grade_here

        if self._grade is None:
            submission, data = self.submission, None
            try:
                data = content(submission)
            except Unreadable as error:
                submission = replace(submission, problem=str(error))
            self._grade = grade_here(self.settings, submission, data)
        return self._grade


class _NotAll(Exception):
    """The answer did not earn all its points; the message says why."""


class _Item(pytest.Item):
    def runtest(self) -> None:
        from course_utils.grading.results import told
        from course_utils.grading.safe import printable

        grade = self.parent.grade()
        (item,) = [item for item in grade.items if item.id == self.name]
        self.user_properties += [
            ("student", grade.student),
            ("file", grade.file),
            ("points", item.points),
            ("out_of", item.out_of),
            ("outcome", item.outcome),
            *(("shortcut", f"{used.name}, line {used.line}") for used in item.shortcuts),
        ]
        if item.points < item.out_of:
            raise _NotAll(printable("\n".join([*grade.notes, told(item)])))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        if isinstance(excinfo.value, _NotAll | GradingError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return HERE, None, f"{self.parent.name} {self.name}"
