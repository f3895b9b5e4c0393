"""What a process does that grades: it makes exam and zygote once, and then grades what it is given."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from course_utils.grading import GradingError
from course_utils.grading.collect import Submission
from course_utils.grading.grade import Exam, grade
from course_utils.grading.grades import Grade
from course_utils.grading.jail import Isolation, probe
from course_utils.grading.run import Zygote
from course_utils.grading.store import Settings

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


def _ready(settings: Settings, isolation: Isolation | None = None) -> tuple[Exam, Zygote]:
    zygote = getattr(_own, "zygote", None)
    if zygote is not None and _own.secret != settings.secret:  # of another class on the same cluster
        end_zygote()
        zygote = None
    isolation = zygote.isolation if zygote else isolation or probe()
    if settings.require_isolation and not isolation.strong:
        raise GradingError(f"isolation is required and not to be had here: {'; '.join(isolation.words)}")
    if zygote is None:
        torch.set_num_threads(1)  # the processes are as many as the cores
        zygote = Zygote(isolation, hidden=settings.secret)
        zygote.__enter__()
        atexit.register(zygote.__exit__, None, None, None)
        _own.zygote, _own.secret = zygote, settings.secret
    with _lock:
        if settings not in _exams:
            _exams.clear()
            _exams[settings] = Exam(settings.lesson, settings.seed, settings.hidden)
        return _exams[settings], zygote


def end_zygote() -> None:
    """Ends the process that this one grades with, if there is one."""
    zygote, _own.zygote = getattr(_own, "zygote", None), None
    if zygote is not None:
        with suppress(OSError):
            zygote.__exit__(None, None, None)
        atexit.unregister(zygote.__exit__)


def work(pipe: Connection, settings: Settings, isolation: Isolation) -> None:
    """Grade what comes through the pipe, until its other end is closed or this process is told to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that has the terminal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with suppress(EOFError, OSError):
            _serve(pipe, settings, isolation)
    finally:
        end_zygote()


def _serve(pipe: Connection, settings: Settings, isolation: Isolation) -> None:
    try:
        _ready(settings, isolation)
    except Exception as error:
        pipe.send(("refused", in_words(error)))
        return
    while True:
        submission, content = pipe.recv()
        try:
            answer: Any = ("graded", grade_here(settings, submission, content))
        except Exception as error:
            answer = ("failed", in_words(error))
        pipe.send(answer)


def in_words(error: BaseException) -> str:
    """An error of ours, for whoever is to mend it."""
    if isinstance(error, GradingError):
        return str(error)
    places = [f" ({frame.name}, line {frame.lineno})" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__}: {error}{(places or [''])[-1]}"
