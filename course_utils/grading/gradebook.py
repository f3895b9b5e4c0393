"""Grade a class: collect, keep what is known, spread the rest, and report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from course_utils.checks.engine import PartVerdict
from course_utils.grading import GradingError, report
from course_utils.grading.collect import Submission, collect, content, guess_lesson
from course_utils.grading.grades import Grade, ItemGrade
from course_utils.grading.results import Run, summary
from course_utils.grading.sheets import Unreadable
from course_utils.grading.spread import Job, isolation_at, spread
from course_utils.grading.store import Settings, Store, opened


def grade_class(
    source: Path,
    out: Path,
    *,
    lesson: str = "",
    seed: int | None = None,
    workers: int | None = None,
    scheduler: str = "",
    require_isolation: bool = False,
    cell_seconds: float = 10.0,
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
    run = _run(lesson)
    isolation = isolation_at(scheduler)
    words = tuple(word for found in isolation.values() for word in found.words)
    strong = all(found.strong for found in isolation.values())
    if not strong:
        told = [f"{place}: {word}" for place, found in isolation.items() for word in found.words]
        if require_isolation:
            raise GradingError("\n  ".join(["isolation is required, and not all of it is to be had.", *told]))
        warn("\n  ".join(["WARNING: what students wrote is not fully isolated.", *told]))
    with opened(out) as store:
        settings = Settings(
            lesson,
            store.seed(seed, fresh=regrade),
            cell_seconds=cell_seconds,
            require_isolation=require_isolation,
            secret=(str(source.resolve()), str(out.resolve())),
        )
        say(f"Lesson {lesson}: {len(submissions)} submissions; hidden inputs drawn by seed {settings.seed}.")
        grades = {} if regrade else dict(_kept(submissions, settings, store))
        kept = len(grades)
        jobs = (
            _job(number, submission, settings)
            for number, submission in enumerate(submissions)
            if number not in grades
        )
        workers = min(len(submissions) - kept, workers or _cores())
        failed = []
        bar = tqdm(total=len(submissions), initial=kept, unit="submission", disable=None)
        with bar, closing(spread(jobs, settings, workers=workers, scheduler=scheduler)) as done:
            for job, answer in done:
                if isinstance(answer, Grade):
                    store.save(job.submission, job.key, answer)
                else:  # and not kept, so that the next run tries it again
                    failed.append(f"{job.submission.student}: {answer}")
                    answer = _ungraded(job.submission, run, answer)
                grades[job.number] = answer
                bar.update()
        run = Run.of(
            lesson,
            seed=settings.seed,
            hidden=settings.hidden,
            strong=strong,
            isolation=words,
            seconds=round(time.monotonic() - begun, 1),
        )
        ordered = [grades[number] for number in range(len(submissions))]
        report.write(ordered, out, run=run)
    for failure in failed:
        warn(f"NOT GRADED: {failure}")
    before = f", {kept} of them kept from before" if kept else ""
    say(f"{summary(ordered, run)} {time.monotonic() - begun:.0f} s{before}. See {out / 'class.html'}")
    return not failed


def _run(lesson: str) -> Run:
    if not lesson:
        raise GradingError("no notebook here says which lesson it belongs to. Name it: --lesson 04")
    try:
        return Run.of(lesson, seed=0)
    except LookupError as error:
        raise GradingError(f"{error} Name one with --lesson.") from None


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


def _kept(submissions: Sequence[Submission], settings: Settings, store: Store) -> Iterator[tuple[int, Grade]]:
    """The grades of an earlier run that still hold, by the submission's place."""
    for number, submission in enumerate(submissions):
        job = _job(number, submission, settings)
        known = store.load(job.submission, job.key)
        if known is not None:
            yield number, known


def _ungraded(submission: Submission, run: Run, why: str) -> Grade:
    """What stands in the results where grading itself failed: no points, and a word to the teacher."""
    items = tuple(
        ItemGrade(asked.id, asked.title, "died", (PartVerdict("the exercise", 0, asked.points),))
        for asked in run.exercises
    )
    notes = (*submission.notes, f"NOT GRADED, please look at it: {why}")
    return Grade(
        submission.student,
        submission.file,
        run.lesson,
        items,
        notes,
        submission.late,
        0.0,
        submission.account,
    )
