"""`course grade` from the command line: messages, exit codes, and what an interruption leaves."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from handed import exercises, packed, right, with_cell

CALL = [sys.executable, "-c", "from course_utils.cli import app; app()", "grade"]
SCRATCH = Path(tempfile.gettempdir()) / f"grade-{os.getpid()}"  # short, for the sockets in it
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "100", "TMPDIR": str(SCRATCH)}
WAIT = 120  # seconds, for what takes two on an idle machine
FORKS = pytest.mark.skipif(sys.platform != "linux", reason="signals and forked children as on Linux")


@pytest.fixture(autouse=True, scope="module")
def scratch():
    SCRATCH.mkdir(exist_ok=True)
    yield
    for left in SCRATCH.glob("pymp-*"):  # Python's own, with the socket of a fork server: a kill -9 leaves it
        shutil.rmtree(left)
    SCRATCH.rmdir()  # which fails if something else was left behind


def course(*arguments: object) -> subprocess.CompletedProcess:
    call = [*CALL, *map(str, arguments)]
    return subprocess.run(call, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)


def started(*arguments: object) -> subprocess.Popen:
    call, text = (
        [*CALL, *map(str, arguments)],
        {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
    )
    return subprocess.Popen(call, env=ENVIRONMENT, start_new_session=True, **text)


def wait_for(condition) -> None:
    for _ in range(WAIT * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def rows(out: Path) -> dict[str, int]:
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: int(row["total"]) for row in csv.DictReader(file)}


@pytest.fixture
def slow_class(tmp_path) -> Path:
    """Ten submissions, each of which takes a while."""
    folder = tmp_path / "class"
    folder.mkdir()
    for number in range(10):
        notebook = right() if number % 2 else exercises()
        notebook = with_cell(notebook, f"import time\ntime.sleep(0.6)  # {number}")
        (folder / f"s{number}.ipynb").write_bytes(packed(notebook))
    return folder


EXPECTED = {f"s{number}": 10 * (number % 2) for number in range(10)}


def interrupted(process: subprocess.Popen, out: Path, how) -> tuple[str, str]:
    """Interrupts a run once it has kept three grades, and waits until nothing of it is left."""
    try:
        wait_for(lambda: len(list((out / "state").glob("[!r]*.json"))) >= 3 or process.poll() is not None)
        assert process.poll() is None
        all_of_it = psutil.Process(process.pid).children(recursive=True)
        assert len(all_of_it) >= 2  # a worker and its zygote at least
        how(process)
        said = process.communicate(timeout=WAIT)
        _, alive = psutil.wait_procs(all_of_it, timeout=WAIT)
        assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
        return said
    finally:
        process.kill()
        process.wait()


@FORKS
def test_an_interrupted_run_leaves_nothing_running_loses_nothing_and_goes_on(slow_class, tmp_path):
    """By Ctrl-C; test_thousand.py has kill -9."""
    out = tmp_path / "results"
    process = started(slow_class, "--out", out, "--workers", 1)
    _, said = interrupted(process, out, lambda process: os.killpg(process.pid, signal.SIGINT))
    assert process.returncode == 130 and "goes on from there" in said and "Traceback" not in said
    assert not (out / "results.json").exists()
    done = len(list((out / "state").glob("[!r]*.json")))
    seed = json.loads((out / "state" / "run.json").read_text())["seed"]

    again = course(slow_class, "--out", out, "--workers", 1)
    assert again.returncode == 0, again.stderr
    kept = int(re.search(r"(\d+) of them kept", again.stdout)[1])
    assert done <= kept < 10
    assert rows(out) == EXPECTED
    assert json.loads((out / "results.json").read_text())["run"]["seed"] == seed


def test_only_what_changed_is_graded_again(tmp_path):
    folder, out = tmp_path / "class", tmp_path / "class" / "results"
    folder.mkdir()
    for name in ("al", "bo"):
        (folder / f"{name}.ipynb").write_bytes(packed(exercises()))
    (folder / "cy.ipynb").write_bytes(b"{")
    (folder / "di").mkdir()
    first = course(folder, "--out", out, "--workers", 1, "--lesson", "4", "--seed", "5")
    assert first.returncode == 0, first.stderr
    assert "4 submissions of lesson 04" in first.stdout.splitlines()[-1]
    assert rows(out) == {"al": 0, "bo": 0, "cy": 0, "di": 0}

    (folder / "bo.ipynb").write_bytes(packed(right()))
    second = course(folder, "--out", out, "--workers", 1)
    assert "seed 5" in second.stdout and "3 of them kept" in second.stdout.splitlines()[-1]
    assert rows(out) == {"al": 0, "bo": 10, "cy": 0, "di": 0}


@pytest.mark.parametrize(
    ("files", "arguments", "said"),
    [
        ({}, [], "no submissions"),
        ({"a.ipynb": b"{}"}, [], "--lesson"),
        ({"a.ipynb": b"{}"}, ["--lesson", "99"], 'no lesson "99"'),
        (None, [], "not there"),
    ],
)
def test_what_cannot_be_graded_is_said_in_a_line(tmp_path, files, arguments, said):
    folder = tmp_path / "class"
    if files is not None:
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
    result = course(folder, "--out", tmp_path / "out", *arguments)
    assert result.returncode == 1 and said in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_wrong_usage_exits_with_2(tmp_path):
    for arguments in (
        [],
        [tmp_path],
        [tmp_path, "--out", "x", "--workers", "0"],
        [tmp_path, "--out", "x", "--seed", "-1"],
    ):
        assert course(*arguments).returncode == 2
