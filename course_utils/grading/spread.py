"""Spread the grading of a class over processes: local ones, or the workers of a Dask cluster.

Both run `grade_here` on one submission at a time, and hand back a grade as soon as it is there. What a
process needs for it (the exam with its right outputs, and the zygote) it makes once and keeps.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from course_utils.grading import GradingError
from course_utils.grading.collect import Submission
from course_utils.grading.grade import Exam, grade
from course_utils.grading.grades import Grade
from course_utils.grading.jail import Isolation, probe
from course_utils.grading.run import Zygote
from course_utils.grading.store import Settings, judging_code

TRIES = 2  # for a submission in whose course a process ended


@dataclass(frozen=True)
class Job:
    """A submission, its place in the class, its bytes (None where there are none), and its grade's key."""

    number: int
    submission: Submission
    content: bytes | None
    key: str


# --- in the process that grades -----------------------------------------------------------------------------

_own = threading.local()  # a thread of a Dask worker has its own zygote
_exams: dict[Settings, Exam] = {}
_lock = threading.Lock()


def grade_here(settings: Settings, submission: Submission, content: bytes | None) -> Grade:
    """The grade of one submission, made in this process.

    Raises:
        GradingError: isolation is required, and this machine has none.
    """
    for left in (1, 0):
        exam, zygote = _ready(settings)
        try:
            return grade(submission, content, exam, zygote, cell_seconds=settings.cell_seconds)
        except Exception:
            end_zygote()  # it may be what broke
            if not left:
                raise
    raise AssertionError("not reached")


def _ready(settings: Settings) -> tuple[Exam, Zygote]:
    if getattr(_own, "zygote", None) is None:
        import torch

        torch.set_num_threads(1)  # the processes are as many as the cores
        isolation = probe()
        if settings.require_isolation and not isolation.strong:
            raise GradingError(f"isolation is required and not to be had here: {'; '.join(isolation.words)}.")
        _own.zygote = Zygote(isolation, hidden=settings.secret)
        _own.zygote.__enter__()
        atexit.register(end_zygote)
    with _lock:
        if settings not in _exams:
            _exams.clear()
            _exams[settings] = Exam(settings.lesson, settings.seed, settings.hidden)
        return _exams[settings], _own.zygote


def end_zygote() -> None:
    """Ends the process that this one grades with, if there is one."""
    zygote, _own.zygote = getattr(_own, "zygote", None), None
    if zygote is not None:
        with suppress(OSError):
            zygote.__exit__(None, None, None)


def isolation_at(scheduler: str = "") -> dict[str, Isolation]:
    """What keeps students' code in, on each machine that would grade.

    Raises:
        GradingError: there is a `scheduler` to ask, and it or its workers cannot be reached.
    """
    if not scheduler:
        return {"this machine": probe()}
    with _client(scheduler) as client:
        return {f"the worker {address}": found for address, found in client.run(probe).items()}


# --- local processes ----------------------------------------------------------------------------------------


def spread(
    jobs: Iterable[Job], settings: Settings, *, workers: int, scheduler: str = ""
) -> Iterator[tuple[Job, Grade | str]]:
    """Each job with its grade, in the order in which they are done, or with the reason why there is none.

    `jobs` are drawn as they are needed, so that no more submissions are in memory than are in work. With a
    `scheduler` ("tcp://...") the workers of its Dask cluster grade, otherwise `workers` processes here.

    Raises:
        GradingError: nothing can be graded: no worker starts, or no cluster answers.
    """
    yield from _on_cluster(jobs, settings, scheduler) if scheduler else _here(jobs, settings, workers)


class _Worker:
    """A process that grades what comes through its pipe; it ends when the other end closes."""

    def __init__(self, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, settings), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.tries = 0

    def give(self, job: Job, tries: int = 0) -> None:
        self.job, self.tries = job, tries + 1
        with suppress(OSError):  # a process that is gone is found when its pipe is read
            self.pipe.send((job.submission, job.content))

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _work(pipe: Connection, settings: Settings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that has the terminal
    with suppress(EOFError, OSError):
        try:
            _ready(settings)
        except Exception as error:
            pipe.send(("refused", _in_words(error)))
            return
        while True:
            submission, content = pipe.recv()
            try:
                answer: Any = ("graded", grade_here(settings, submission, content))
            except Exception as error:
                answer = ("failed", _in_words(error))
            pipe.send(answer)


def _in_words(error: BaseException) -> str:
    if isinstance(error, GradingError):
        return str(error)
    places = [f" ({frame.name}, line {frame.lineno})" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__}: {error}{(places or [''])[-1]}"


def _here(jobs: Iterable[Job], settings: Settings, count: int) -> Iterator[tuple[Job, Grade | str]]:
    waiting = iter(jobs)
    again: list[tuple[Job, int]] = []
    workers: list[_Worker] = []

    def occupy(worker: _Worker) -> bool:
        job, tries = again.pop() if again else (next(waiting, None), 0)
        if job is not None:
            worker.give(job, tries)
        else:
            worker.job = None
        return job is not None

    try:
        workers += [_Worker(settings) for _ in range(count)]
        for worker in workers:
            occupy(worker)
        while busy := {worker.pipe: worker for worker in workers if worker.job}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]
                job, tries = worker.job, worker.tries
                try:
                    kind, answer = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.end()
                    code = worker.process.exitcode
                    if tries < TRIES:
                        again.append((job, tries))
                    else:
                        yield job, f"the process that graded it ended {tries} times (exit code {code})"
                    workers.append(worker := _Worker(settings))
                else:
                    if kind == "refused":
                        raise GradingError(answer)
                    yield job, answer
                occupy(worker)
    finally:
        for worker in workers:
            worker.end()


# --- a Dask cluster -----------------------------------------------------------------------------------------


def _client(scheduler: str) -> Any:
    """A client of the cluster, once it has workers with the same code as here."""
    from distributed import Client

    try:
        client = Client(scheduler, timeout=30, set_as_default=False)
    except (OSError, ValueError) as error:
        raise GradingError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    try:
        client.wait_for_workers(1, timeout=60)
        codes = client.run(judging_code)
    except TimeoutError:
        client.close()
        raise GradingError(f"{scheduler} has no workers. Start some: dask worker {scheduler}") from None
    except BaseException:
        client.close()
        raise
    others = [address for address, code in codes.items() if code != judging_code()]
    if others:
        client.close()
        raise GradingError(
            f"{', '.join(others)}: not the same version of the course, torch and numpy as here."
        )
    return client


def _on_cluster(jobs: Iterable[Job], settings: Settings, scheduler: str) -> Iterator[tuple[Job, Grade | str]]:
    from distributed import as_completed

    with _client(scheduler) as client:
        waiting = iter(jobs)
        running: dict[Any, Job] = {}
        done = as_completed()

        def submit() -> None:
            job = next(waiting, None)
            if job is not None:
                # Dask moves a task to another worker when one dies, up to the scheduler's allowed-failures.
                arguments = (settings, job.submission, job.content)
                future = client.submit(grade_here, *arguments, pure=False, key=f"grade-{job.key}")
                running[future] = job
                done.add(future)

        for _ in range(2 * sum(client.nthreads().values())):  # so that no worker waits for the next
            submit()
        for future in done:
            job = running.pop(future)
            if future.status == "finished":
                yield job, future.result()
            elif future.status == "error":
                error = future.exception()
                if isinstance(error, GradingError):
                    raise error
                yield job, f"the cluster could not grade it: {_in_words(error)}"
            else:
                raise GradingError("the Dask scheduler went away. What is graded is kept: run it again.")
            submit()
