"""A class spread over processes: nothing is lost when one of them is killed, here or on a Dask cluster."""

import os
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from handed import exercises, packed, right, with_cell

from course_utils.grading import GradingError, spread
from course_utils.grading.collect import Submission
from course_utils.grading.grades import Grade
from course_utils.grading.jail import Isolation, probe
from course_utils.grading.spread import Job
from course_utils.grading.store import Settings

SETTINGS = Settings("04", seed=21, hidden=1)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is not to be had")


def jobs(count: int = 6, seconds: float = 0.4) -> list[Job]:
    """Right answers and stubs in turn, each of which takes a while."""
    made = []
    for number in range(count):
        notebook = with_cell(right() if number % 2 else exercises(), f"import time\ntime.sleep({seconds})")
        submission = Submission(f"s{number}", f"s{number}.ipynb", Path("x"))
        made.append(Job(number, submission, packed(notebook), f"key{number}-{os.getpid()}"))
    return made


def points(found: dict[int, Grade | str]) -> dict[int, int]:
    return {number: grade.points for number, grade in found.items()}


def timeless(grade: Grade) -> Grade:
    return replace(grade, seconds=0.0, items=tuple(replace(item, seconds=0.0) for item in grade.items))


EXPECTED = {number: 10 * (number % 2) for number in range(6)}


def graders() -> list[psutil.Process]:
    """The local processes that grade now: those with a zygote below them."""
    below = psutil.Process().children(recursive=True)
    return [one for one in below if any("zygote" in " ".join(child.cmdline()) for child in one.children())]


def spread_here(made, **options):
    options = {"workers": 2, "isolation": probe()} | options
    return closing(spread.spread(made, SETTINGS, **options))


def test_a_killed_process_costs_nothing(monkeypatch):
    drawn = []
    made = (drawn.append(job.number) or job for job in jobs())
    found = {}
    with spread_here(made) as running:
        for job, answer in running:
            found[job.number] = answer
            assert len(drawn) <= len(found) + 2  # no more are in memory than are in work
            if len(found) == 1:
                graders()[0].kill()
    assert points(found) == EXPECTED
    assert not graders()


def test_who_kills_its_process_again_and_again_is_said(monkeypatch):
    monkeypatch.setattr(spread, "TRIES", 1)
    found = {}
    with spread_here(jobs(3), workers=1) as running:
        for job, answer in running:
            found[job.number] = answer
            if len(found) == 1:
                time.sleep(0.2)
                graders()[0].kill()
    lost = [answer for answer in found.values() if isinstance(answer, str)]
    assert len(found) == 3 and len(lost) == 1
    assert "ended 1 times (exit code -9)" in lost[0]


def test_left_early_it_leaves_nothing_running():
    with spread_here([*jobs(1, seconds=0), *jobs(4, seconds=8)[1:]]) as running:
        for _ in running:
            break
    assert not graders()


def test_isolation_that_is_required_and_missing_is_said():
    with (
        pytest.raises(GradingError, match="isolation is required"),
        closing(
            spread.spread(
                jobs(1), replace(SETTINGS, require_isolation=True), workers=1, isolation=Isolation()
            )
        ) as running,
    ):
        list(running)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    made = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    yield made
    made.close()


def test_a_cluster_that_loses_a_worker_in_mid_run_loses_no_grade(cluster):
    from distributed import Client

    address = cluster.scheduler_address
    places = spread.isolation_at(address)
    assert len(places) == 2 and all(found == probe() for found in places.values())
    with Client(address, set_as_default=False) as client:
        pids = list(client.run(os.getpid).values())
    found = {}
    with spread_here(jobs(), scheduler=address) as running:
        for job, answer in running:
            found[job.number] = answer
            if len(found) == 2:
                os.kill(pids[0], signal.SIGKILL)
    assert points(found) == EXPECTED
    with spread_here(jobs()[:2], workers=1) as running:
        for job, answer in running:
            assert timeless(answer) == timeless(found[job.number])


def test_what_a_cluster_cannot_grade_is_said(cluster):
    broken = [replace(job, submission="no submission") for job in jobs(2)]
    broken = [replace(job, key=f"broken-{job.key}") for job in broken]
    with spread_here(broken, scheduler=cluster.scheduler_address) as running:
        answers = [answer for _, answer in running]
    assert len(answers) == 2 and all("could not grade it: AttributeError" in answer for answer in answers)


def test_a_cluster_that_is_not_there_is_said(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(spread, "PATIENCE", 1)
    with pytest.raises(GradingError, match="no Dask scheduler answers"):
        spread.isolation_at("tcp://127.0.0.1:9")
    with pytest.raises(GradingError, match="no Dask scheduler answers"):
        spread.isolation_at("nonsense://x")
