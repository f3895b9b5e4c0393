"""Run a submission: its cells in a child of the zygote, then the questions, each within its time.

The grader's side. Whatever a child does (end, hang, send nonsense) costs the exercise that was asked, and no
other: a new child runs the cells again, without those that hung or killed, and goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np

from course_utils import questions
from course_utils.grading import CELL_SECONDS, wire
from course_utils.grading.jail import BOOT, FLAGS, PACKAGE, Isolation, environment, probe, remove
from course_utils.questions.asking import Inputs, Reply

GRACE = 2.0  # seconds on top of what the child itself holds to
SUBMISSION_SECONDS = 300.0
LIVES = 12  # children that one submission may use up
START_SECONDS = 120.0

Outcome = Literal["answered", "missing", "stopped", "died"]


class Cell(Protocol):
    """What is needed of a cell."""

    number: int
    source: str


@dataclass(frozen=True)
class Answers:
    """What a submission replied, by exercise: for each seed, for each part, a reply or None for each case."""

    replies: Mapping[str, list[list[list[Reply | None]]]]
    outcome: Mapping[str, Outcome]
    notes: tuple[str, ...]
    seconds: Mapping[str, float]


class ZygoteError(Exception):
    """The process that submissions are run in cannot be started, or is lost."""


# --- the process --------------------------------------------------------------------------------------------


class Zygote:
    """The preloaded process that forks a jailed child for each submission; use it in a `with` statement.

    Where nothing can be forked (not Linux), each child is a fresh process, which takes seconds to start.
    `hidden` are folders that no child may see, such as those of the submissions and of the results.

    Raises:
        ZygoteError: it does not start.
    """

    def __init__(
        self,
        isolation: Isolation | None = None,
        *,
        hidden: Sequence[Path | str] = (),
        fork: bool | None = None,
    ):
        self.isolation = isolation or probe()
        self.hidden = [os.path.realpath(path) for path in hidden]
        self.forks = sys.platform == "linux" if fork is None else fork
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.connection: socket.socket | None = None
        self.place = ""

    def __enter__(self) -> Zygote:
        if self.forks:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()
        self._stop()

    def spawn(self) -> socket.socket:
        """A connection to a new child. The one before, and all that it started, is ended."""
        self._hang_up()
        if not self.forks:
            return self._spawn_alone()
        for attempt in (1, 2):
            if self.process is None:
                self._start()
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(self.control, [b"f"], [theirs.fileno()])
                self._answered(b"d")
            except (OSError, ZygoteError):
                ours.close()
                self._stop()
                if attempt == 2:
                    raise ZygoteError("the process that runs submissions is lost, twice in a row") from None
                continue
            finally:
                theirs.close()
            self.connection = ours
            return ours
        raise AssertionError("unreachable")

    def end(self) -> None:
        """End the child, and all that it started."""
        self._hang_up()
        if not self.forks:
            self._stop()
        elif self.process is not None:
            try:
                self.control.sendall(b"e")
                self._answered(b"d")
            except (OSError, ZygoteError):
                self._stop()

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _start(self) -> None:
        if "namespaces" not in self.isolation.means:
            self.place = tempfile.mkdtemp(prefix="course-grade-")
        self.control, theirs = socket.socketpair()
        told = {"means": self.isolation.means, "place": self.place, "hidden": self.hidden}
        with theirs, tempfile.TemporaryFile() as errors:
            self.process = _python(
                "zygote",
                "main",
                str(theirs.fileno()),
                json.dumps(told),
                stderr=errors,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            try:
                self._answered(b"r", START_SECONDS)
            except (OSError, ZygoteError):
                self._stop()
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines() or ["without a word"]
                raise ZygoteError(f"the process that runs submissions did not start: {said[-1]}") from None
            except BaseException:
                self._stop()
                raise

    def _answered(self, wanted: bytes, seconds: float = 30.0) -> None:
        self.control.settimeout(seconds)
        if self.control.recv(1) != wanted:
            raise ZygoteError("the process that runs submissions is lost")

    def _stop(self) -> None:
        """End the process, which takes its children along."""
        if self.control is not None:
            self.control.close()
            self.control = None
        if self.process is not None:
            if not self.forks:
                _end_tree(self.process)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        if self.place:
            remove(self.place)
            self.place = ""

    def _spawn_alone(self) -> socket.socket:
        self._stop()
        self.place = tempfile.mkdtemp(prefix="course-grade-")
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            told = json.dumps({"scratch": self.place})
            self.process = _python(
                "zygote", "alone", str(port), told, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.process.stdin.write(f"{token}\n".encode())
            self.process.stdin.close()
            deadline = time.monotonic() + START_SECONDS
            while True:
                listening.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    connection, _ = listening.accept()
                    connection.settimeout(5)
                    came = connection.recv(len(token), socket.MSG_WAITALL).decode(errors="replace")
                except TimeoutError:
                    if time.monotonic() < deadline and self.process.poll() is None:
                        continue
                    self._stop()
                    raise ZygoteError("the process that runs a submission did not start") from None
                if secrets.compare_digest(came, token):
                    self.connection = connection
                    return connection
                connection.close()


def _python(module: str, *arguments: str, **options: Any) -> subprocess.Popen:
    """A Python of its own session, in which a module of this package is the program."""
    usual: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": environment()}
    if os.name != "nt":
        usual["start_new_session"] = True
    program = [sys.executable, *FLAGS, "-c", BOOT, str(PACKAGE.parent), module, *arguments]
    return subprocess.Popen(program, **usual | options)


def _end_tree(process: subprocess.Popen) -> None:
    """End a process and what it started, as far as this system can tell."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


# --- a submission -------------------------------------------------------------------------------------------


def answers(
    zygote: Zygote,
    cells: Sequence[Cell],
    asked: Mapping[str, Sequence[Sequence[Sequence[Inputs]]]],
    *,
    cell_seconds: float = CELL_SECONDS,
    question_seconds: float | None = None,
    submission_seconds: float = SUBMISSION_SECONDS,
) -> Answers:
    """Run the cells and ask the exercises: by id, for each seed, for each part, its cases.

    The first seed of every exercise is asked before the second of any: its cases are shown to students, and
    an answer that has seen no hidden inputs yet cannot put them into what it says there. `question_seconds`
    replaces the time that each question has of its own.

    Raises:
        ZygoteError: no child can be started.
    """
    limits = _Limits(cell_seconds, question_seconds, time.monotonic() + submission_seconds)
    run = _Run(zygote, cells, asked, limits)
    try:
        for seed in range(max(map(len, asked.values()), default=0)):
            for id, cases in asked.items():
                if seed < len(cases):
                    run.ask(id, seed, cases[seed])
    finally:
        zygote.end()
    return run.result()


class _Out(Exception):
    """The submission has used up its time or its lives."""


@dataclass(frozen=True)
class _Limits:
    cell_seconds: float
    question_seconds: float | None
    deadline: float

    def within(self, seconds: float) -> float:
        """The moment, in so many seconds, but not after the submission's own end."""
        return min(time.monotonic() + seconds, self.deadline)


class _Run:
    """A submission while it is run."""

    def __init__(
        self,
        zygote: Zygote,
        cells: Sequence[Cell],
        asked: Mapping[str, Sequence[Sequence[Sequence[Inputs]]]],
        limits: _Limits,
    ):
        self.zygote, self.cells, self.limits = zygote, cells, limits
        self.connection: socket.socket | None = None
        self.lives = LIVES
        self.skipped: dict[int, str] = {}
        self.problems: dict[int, str] | None = None  # of the first child that got through all its cells
        self.out = ""
        self.replies: dict[str, list[list[list[Reply | None]]]] = {
            id: [[[None] * len(part) for part in parts] for parts in cases] for id, cases in asked.items()
        }
        self.outcome: dict[str, Outcome] = {}
        self.seconds = dict.fromkeys(asked, 0.0)
        # How many parts are still asked: one that hung or killed costs itself and what follows.
        self.open = {id: max(map(len, cases), default=0) for id, cases in asked.items()}

    def ask(self, id: str, seed: int, parts: Sequence[Sequence[Inputs]]) -> None:
        """Ask the parts of one exercise with the cases of one seed."""
        for place, cases in enumerate(parts[: self.open[id]]):
            try:
                self._ready()
            except _Out as error:
                self.outcome[id], self.open[id] = "died" if self.lives <= 0 else "stopped", place
                self.out = str(error)
                return
            began = time.monotonic()
            try:
                replies = self._replies(id, cases)
            except (TimeoutError, EOFError, wire.WireError) as error:
                self.outcome[id], self.open[id] = (
                    "stopped" if isinstance(error, TimeoutError) else "died",
                    place,
                )
                self.connection = None
                return
            finally:
                self.seconds[id] += time.monotonic() - began
            if replies is None:
                self.outcome[id], self.open[id] = "missing", 0
                return
            self.replies[id][seed][place] = replies
            kinds = {reply.trouble.kind for reply in replies if reply.trouble}
            if kinds & {"stopped", "unanswered"}:
                for later in range(place + 1, len(parts)):
                    self.replies[id][seed][later] = [replies[-1]] * len(parts[later])
                self.open[id] = place
                if "stopped" in kinds:
                    self.outcome[id] = "stopped"
                return

    def _replies(self, id: str, cases: Sequence[Inputs]) -> list[Reply] | None:
        """The replies to the cases of one part; None where the function is not defined."""
        nonce = secrets.token_hex(8)  # what was sent before it was asked for answers nothing
        seconds = self.limits.question_seconds or questions.find(id).seconds
        deadline = self.limits.within(seconds + GRACE)
        order = {"ask": id, "nonce": nonce, "seconds": seconds, "cases": list(cases)}
        wire.send(self.connection, order, deadline)
        message = wire.receive(self.connection, deadline)
        if type(message) is not dict or message.keys() != {"to", "replies"} or message["to"] != nonce:
            raise wire.WireError("something else came than the reply that was asked for")
        if message["replies"] is None:
            return None
        return wire.unpack_replies(message["replies"], len(cases))

    def _ready(self) -> None:
        """See to it that there is a child that has run the cells."""
        while self.connection is None:
            if self.lives <= 0:
                raise _Out(f"given up after {LIVES} processes, each of which ended or hung")
            self._check_time()
            self.lives -= 1
            self.connection = self.zygote.spawn()
            self._run_cells()
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() >= self.limits.deadline:
            raise _Out("stopped: the submission as a whole took too long")

    def _run_cells(self) -> None:
        """Run the cells that are not skipped. One that hangs or kills is skipped from now on."""
        left = [place for place in range(len(self.cells)) if place not in self.skipped]
        problems: dict[int, str] = {}
        current = None
        try:
            self._send_cells(left)
            for current in left:
                deadline = self.limits.within(self.limits.cell_seconds + GRACE)
                self._expect(deadline, begins=current)
                problem = self._expect(deadline, ends=current)["problem"]
                if problem:
                    problems[current] = _clean(problem)
            current = None
            self._expect(self.limits.within(GRACE), ready=True)
        except (TimeoutError, EOFError, wire.WireError) as error:
            self.connection = None
            if current is None:
                return
            slow = isinstance(error, TimeoutError)
            self.skipped[current] = (
                f"was stopped after {self.limits.cell_seconds:g} seconds, from outside, and is left out"
                if slow
                else "ended the process, and is left out"
            )
            return
        # What a later child says might be about inputs that the first has seen.
        self.problems = problems if self.problems is None else self.problems

    def _send_cells(self, places: Sequence[int]) -> None:
        """A notebook may be longer than the plain part of a message, so that its text goes as bytes."""
        told = [
            [place, self.cells[place].number, np.frombuffer(self.cells[place].source.encode(), np.uint8)]
            for place in places
        ]
        order = {"cells": told, "seconds": self.limits.cell_seconds}
        wire.send(self.connection, order, self.limits.within(START_SECONDS))

    def _expect(self, deadline: float, **wanted: Any) -> dict[str, Any]:
        message = wire.receive(self.connection, deadline)
        if type(message) is not dict or any(message.get(name) != value for name, value in wanted.items()):
            raise wire.WireError("something else came than the next step")
        return message

    def result(self) -> Answers:
        notes = []
        problems = self.skipped | {
            p: said for p, said in (self.problems or {}).items() if p not in self.skipped
        }
        for place in sorted(problems):
            notes.append(f"cell {self.cells[place].number} {problems[place]}")
        if self.out:
            notes.append(self.out)
        outcome: dict[str, Outcome] = {id: self.outcome.get(id, "answered") for id in self.replies}
        return Answers(self.replies, outcome, tuple(notes), self.seconds)


def _clean(text: Any) -> str:
    """A text from a child, on one line, short, without control characters."""
    if type(text) is not str:
        raise wire.WireError("a text is wanted")
    return "".join(c if c.isprintable() else " " for c in text[:300])
