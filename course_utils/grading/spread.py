"""Spread the grading of a class over processes: local ones, or the workers of a Dask cluster.

Both run `worker.grade_here` on one submission at a time, and hand back a grade as soon as it is there.
Nothing here loads torch, so that the processes which need it can start beside this one.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from course_utils.grading import GradingError
from course_utils.grading.collect import Submission
from course_utils.grading.jail import Isolation, probe
from course_utils.grading.store import Settings, judging_code

if TYPE_CHECKING:
    from course_utils.grading.grades import Grade

WORKER = "course_utils.grading.worker"
# A fork server loads torch once for all processes, and holds none of our files and pipes open in them.
CONTEXT = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
PATIENCE = 20  # seconds to reach a cluster, and for a process to put away what it works with
TRIES = 2  # for a submission in whose course a process ended


@dataclass(frozen=True)
class Job:
    """A submission, its place in the class, its bytes (None where there are none), and its grade's key."""

    number: int
    submission: Submission
    content: bytes | None
    key: str


def isolation_at(scheduler: str = "") -> dict[str, Isolation]:
    """What keeps students' code in, on each machine that would grade.

    Raises:
        GradingError: there is a `scheduler` to ask, and it or its workers cannot be reached.
    """
    if not scheduler:
        return {"this machine": probe()}
    with _client(scheduler) as client:
        return {f"the worker {address}": found for address, found in client.run(probe).items()}


def warm() -> None:
    """Start to load, beside this process, what those that grade will need."""
    if CONTEXT.get_start_method() == "forkserver":
        forkserver.set_forkserver_preload([WORKER])
        forkserver.ensure_running()


def spread(
    jobs: Iterable[Job], settings: Settings, *, workers: int, isolation: Isolation, scheduler: str = ""
) -> Iterator[tuple[Job, Grade | str]]:
    """Each job with its grade, in the order in which they are done, or with the reason why there is none.

    Close it (contextlib.closing), whatever happens, and its processes are gone. `jobs` are drawn as they are
    needed, so that no more submissions are in memory than are in work. With a `scheduler` ("tcp://...") the
    workers of its Dask cluster grade, otherwise `workers` processes here.

    Raises:
        GradingError: nothing can be graded: no worker starts, or no cluster answers.
    """
    if scheduler:
        yield from _on_cluster(jobs, settings, scheduler)
    else:
        yield from _here(jobs, settings, workers, isolation)


# --- local processes ----------------------------------------------------------------------------------------


class _Worker:
    """A process that grades what comes through its pipe; it ends when the other end closes."""

    def __init__(self, settings: Settings, isolation: Isolation) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_work, args=(theirs, settings, isolation), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.tries = 0

    def give(self, job: Job, tries: int = 0) -> None:
        self.job, self.tries = job, tries + 1
        with suppress(OSError):  # a process that is gone is found when its pipe is read
            self.pipe.send((job.submission, job.content))

    def leave(self) -> None:
        """Have it end, also in the middle of a submission."""
        self.pipe.close()
        self.process.terminate()

    def end(self) -> None:
        self.leave()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


def _work(pipe: Connection, settings: Settings, isolation: Isolation) -> None:
    from course_utils.grading.worker import work

    work(pipe, settings, isolation)


def _here(
    jobs: Iterable[Job], settings: Settings, count: int, isolation: Isolation
) -> Iterator[tuple[Job, Grade | str]]:
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
        workers += [_Worker(settings, isolation) for _ in range(count)]
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
                    workers.append(worker := _Worker(settings, isolation))
                else:
                    if kind == "refused":
                        raise GradingError(answer)
                    yield job, answer
                occupy(worker)
    finally:
        for worker in workers:
            worker.leave()
        for worker in workers:
            worker.end()


# --- a Dask cluster -----------------------------------------------------------------------------------------


def _client(scheduler: str) -> Any:
    """A client of the cluster, once it has workers with the same code as here."""
    from distributed import Client

    try:
        client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
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

    from course_utils.grading.worker import grade_here, in_words

    with _client(scheduler) as client:
        waiting = iter(jobs)
        running: dict[Any, Job] = {}
        done = as_completed(loop=client.loop)

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
                yield job, f"the cluster could not grade it: {in_words(error)}"
            else:
                raise GradingError("the Dask scheduler went away. What is graded is kept: run it again.")
            submit()
