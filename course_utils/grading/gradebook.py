"""Grade a class: collect, keep what is known, spread the rest, and report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from course_utils.grading import CELL_SECONDS, HIDDEN, GradingError
from course_utils.grading.collect import Submission, collect, content, guess_lesson
from course_utils.grading.jail import Isolation
from course_utils.grading.sheets import Unreadable
from course_utils.grading.spread import Job, isolation_at, spread, warm
from course_utils.grading.store import Settings, Store, opened

if TYPE_CHECKING:
    from course_utils.grading.grades import Grade

CHECKS = Path(__file__).parent.parent / "checks"


def grade_class(
    source: Path,
    out: Path,
    *,
    lesson: str = "",
    seed: int | None = None,
    hidden: int = HIDDEN,
    workers: int | None = None,
    scheduler: str = "",
    require_isolation: bool = False,
    cell_seconds: float = CELL_SECONDS,
    regrade: bool = False,
    say: Callable[[str], None] = print,
    warn: Callable[[str], None] = print,
) -> bool:
    """Grades the submissions in `source`, writes the results below `out`, and says the outcome in a line.

    What an earlier run into `out` graded is kept where nothing changed since; its seed stays, unless another
    is given or `regrade` asks for new hidden inputs. Returns False if some submission could not be graded.

    Raises:
        GradingError: there is nothing to grade, the lesson cannot be told, `out` cannot be used, no process
            can grade, or isolation is required and not to be had.
    """
    begun = time.monotonic()
    submissions = collect(source, lesson, skip=[out])
    if not lesson:
        lesson = guess_lesson(submissions)
        submissions = collect(source, lesson, skip=[out])
    _check_lesson(lesson)
    places = isolation_at(scheduler)
    isolation = min(places.values(), key=lambda found: found.strong)  # the weakest of them
    if not isolation.strong:
        told = [f"{place}: {word}" for place, found in places.items() for word in found.words]
        if require_isolation:
            raise GradingError("\n  ".join(["isolation is required, and not all of it is to be had.", *told]))
        warn("\n  ".join(["WARNING: what students wrote is not fully isolated.", *told]))
    with opened(out) as store:
        settings = Settings(
            lesson,
            store.seed(seed, fresh=regrade),
            hidden,
            cell_seconds=cell_seconds,
            require_isolation=require_isolation,
            secret=(str(source.resolve()), str(out.resolve())),
        )
        say(f"Lesson {lesson}: {len(submissions)} submissions; hidden inputs drawn by seed {settings.seed}.")
        held = {} if regrade else _held(submissions, settings, store)
        if not scheduler and len(held) < len(submissions):
            warm()  # beside this process, which loads torch for what follows
        grades = {
            number: grade for number, job in held.items() if (grade := store.load(job.submission, job.key))
        }
        kept = len(grades)
        failed = {}
        missing = [number for number in range(len(submissions)) if number not in grades]
        spreading = spread(
            (_job(number, submissions[number], settings) for number in missing),
            settings,
            workers=min(len(missing), workers or _cores()),
            isolation=isolation,
            scheduler=scheduler,
        )
        bar = tqdm(total=len(submissions), initial=kept, unit="submission", disable=None)
        with bar, closing(spreading):
            for job, answer in spreading:
                if isinstance(answer, str):  # not kept, so that the next run tries it again
                    failed[job.number] = answer
                else:
                    store.save(job.submission, job.key, answer)
                    grades[job.number] = answer
                bar.update()
        last = _report(submissions, grades, failed, settings, isolation, begun, out)
    for number, why in failed.items():
        warn(f"course: NOT GRADED: {submissions[number].student}: {why}")
    before = f", {kept} of them kept from before" if kept else ""
    say(f"{last} {time.monotonic() - begun:.0f} s{before}. See {out / 'class.html'}")
    return not failed


def _check_lesson(lesson: str) -> None:
    known = sorted(path.stem.removeprefix("lesson") for path in CHECKS.glob("lesson??.py"))
    if not lesson:
        raise GradingError("no notebook here says which lesson it belongs to. Name it: --lesson 04")
    if lesson not in known:
        raise GradingError(f'there is no lesson "{lesson}" with exercises. There are {", ".join(known)}.')


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _job(number: int, submission: Submission, settings: Settings) -> Job:
    try:
        data = content(submission)
    except Unreadable as error:
        data, submission = None, replace(submission, problem=str(error))
    return Job(number, submission, data, settings.key(data, submission))


def _held(submissions: Sequence[Submission], settings: Settings, store: Store) -> dict[int, Job]:
    """The submissions whose grade of an earlier run still holds, by their places, without their bytes."""
    jobs = (_job(number, submission, settings) for number, submission in enumerate(submissions))
    return {job.number: replace(job, content=None) for job in jobs if store.holds(job.submission, job.key)}


def _report(
    submissions: Sequence[Submission],
    grades: Mapping[int, Grade],
    failed: Mapping[int, str],
    settings: Settings,
    isolation: Isolation,
    begun: float,
    out: Path,
) -> str:
    """Writes the results, and returns the line that sums them up."""
    from course_utils.grading import report
    from course_utils.grading.results import Run, summary

    run = Run.of(
        settings.lesson,
        seed=settings.seed,
        hidden=settings.hidden,
        strong=isolation.strong,
        isolation=tuple(isolation.words),
        seconds=round(time.monotonic() - begun, 1),
    )
    ordered = [
        grades[number] if number in grades else _ungraded(submission, settings, failed[number])
        for number, submission in enumerate(submissions)
    ]
    report.write(ordered, out, run=run)
    return summary(ordered, run)


def _ungraded(submission: Submission, settings: Settings, why: str) -> Grade:
    """What stands in the results where grading itself failed: no points, and a word to the teacher."""
    from course_utils.checks import exercises
    from course_utils.grading.grade import graded, without

    items = tuple(without(exercise, "died") for exercise in exercises(settings.lesson))
    notes = (f"NOT GRADED, please look at it and grade again: {why}",)
    return graded(submission, settings.lesson, items, notes)
