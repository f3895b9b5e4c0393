"""The preloaded process, and the children it forks: one for each submission, shut in, with no answers in it.

The grader holds the other end of `control`. Each order is one byte: "f" forks a child for the socket that
comes with it, "e" ends the child and all that it started; each is answered by one byte. When the grader is
gone, so is everything here. What the child is told and what it says goes over its own socket, so that no
submission passes through the process that all of them share.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import json
import linecache
import os
import pkgutil
import platform
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from IPython.core import getipython
from IPython.core.inputtransformer2 import TransformerManager

from course_utils import questions
from course_utils.grading import wire
from course_utils.grading.jail import Ward, limit, shown
from course_utils.questions import asking
from course_utils.questions.asking import Question, Reply, Trouble, ask
from course_utils.questions.limit import TimeUp, alarmed, within

# What the notebooks of the course import, and what torch itself imports late, for the first gradient. What
# else a student imports is loaded when it is asked for.
EARLY = (
    "course_utils.models",
    "course_utils.runtime",
    "jaxtyping",
    "matplotlib.pyplot",
    "IPython.display",
    "torch.fx.experimental.symbolic_shapes",
)
# A thread for each case would take half as long as the case. Here the grader sees to it that all ends.
limited = alarmed if hasattr(signal, "setitimer") else within
NEVER = 1e6  # seconds: the child waits as long as the grader lets it live


def preload() -> None:
    """Load what takes time, and start no thread: only then is a fork safe."""
    for name in (
        *EARLY,
        *(f"{questions.__name__}.{m.name}" for m in pkgutil.iter_modules(questions.__path__)),
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    platform.python_version()  # which the first cell of every notebook prints, and which is worked out once
    with contextlib.suppress(AttributeError):  # what half precision has to know of the processor, from /proc
        torch.cpu._is_avx2_supported()
    torch.set_num_threads(1)


# --- the process that forks ---------------------------------------------------------------------------------


def main(descriptor: str, told: str) -> None:
    """Fork children as the grader orders it, until it closes its end."""
    control = socket.socket(fileno=int(descriptor))
    given = json.loads(told)
    preload()
    _leave_the_course()
    gc.collect()
    gc.freeze()  # what is loaded is no garbage; looking at it would copy its pages in every child
    ward = Ward(given["means"], given["place"], given["hidden"])
    ward.enter()
    control.sendall(b"r")
    child = count = 0
    while True:
        order, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if child:
            ward.end(child)
            child = 0
        if not order:
            ward.leave()
            os._exit(0)
        if order == b"f":
            count += 1
            scratch = ward.scratch(count)
            child = ward.fork()
            if child == 0:
                _be_the_child(ward, sockets[0], scratch)
        for each in sockets:
            os.close(each)
        control.sendall(b"d")


def _leave_the_course() -> None:
    """Take the course's own folder off the path of imports: beside it may lie the solutions."""
    seen = [path.rstrip("/") + "/" for path in shown()] if sys.platform == "linux" else []
    sys.path[:] = [path for path in sys.path[1:] if not seen or f"{path}/".startswith(tuple(seen))]


def _be_the_child(ward: Ward, connection: int, scratch: str) -> None:
    try:
        ward.apply(connection, scratch)
        _live_in(scratch)
        serve(socket.socket(fileno=3))
    finally:
        os._exit(0)


def _live_in(scratch: str) -> None:
    os.environ |= dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP"), scratch)
    tempfile.tempdir = None
    os.chdir(scratch)


def alone(port: str, told: str) -> None:
    """Where nothing can be forked: one fresh process for each submission, which calls the grader back."""
    token = sys.stdin.readline().strip()
    preload()
    _leave_the_course()
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.sendall(token.encode())
    _live_in(json.loads(told)["scratch"])
    limit(0)
    try:
        serve(connection)
    finally:
        os._exit(0)


# --- the child ----------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> None:
    """Run the cells of a submission, then ask its functions whatever the grader wants to know."""
    order = wire.receive(connection, _never())
    namespace, own = _notebook(), os.getpid()
    asking.within = limited
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    # All of them before the first is run, and could change how.
    cells = [(place, *translated(text.tobytes().decode(), number)) for place, number, text in order["cells"]]
    for place, file, code in cells:
        wire.send(connection, {"begins": place}, _never())
        _make_room()
        problem = run_cell(code, file, namespace, order["seconds"])
        if os.getpid() != own:  # a copy that the cell made of us, and did not end
            return
        wire.send(connection, {"ends": place, "problem": problem}, _never())
    wire.send(connection, {"ready": True}, _never())
    while True:
        order = wire.receive(connection, _never())
        question = questions.find(order["ask"])
        if question.function in namespace:
            question = replace(question, seconds=order["seconds"])
            _make_room()
            replies = answer(question, namespace[question.function], order["cases"])
        else:
            replies = None
        if os.getpid() != own:
            return
        try:
            wire.send(connection, {"to": order["nonce"], "replies": replies}, _never())
        except wire.WireError:
            wire.send(connection, {"to": order["nonce"], "replies": _sendable(replies)}, _never())


def _make_room() -> None:
    """End the processes that the code before has left running, if they take up all that there may be.

    Possible in a process-id namespace of our own: there, we are number 1, and all others are ours.
    """
    if os.name == "nt" or not _has_children():
        return
    for _ in range(100):
        try:
            threading.Thread(target=_nothing).start()
            return
        except RuntimeError:
            if os.getpid() != 1:
                return
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _never() -> float:
    return time.monotonic() + NEVER


def answer(question: Question, function: Any, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The packed replies to the cases of one part."""
    try:
        [replies] = ask(question, function, [cases])
    except KeyboardInterrupt:
        replies = [Reply(trouble=Trouble("raised", "Your code raised KeyboardInterrupt."))] * len(cases)
    return wire.pack_replies(replies)


def _sendable(replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies, with words in place of those that are too large, or hold what cannot be sent."""
    sent = []
    for reply in replies:
        try:
            if len(wire.encode(reply)) > wire.ARRAYS_LIMIT // len(replies):
                raise wire.WireError("too large")
            sent.append(reply)
        except wire.WireError:
            trouble = Trouble("result", "What it returns is too large to be judged.")
            sent += wire.pack_replies([Reply(trouble=trouble, printed=reply["printed"])])
    return sent


def translated(source: str, number: int) -> tuple[str, types.CodeType | str]:
    """The name that a cell has in tracebacks, and its code; or what is wrong with it, in words."""
    file = f"<cell {number}>"
    try:
        code = TransformerManager().transform_cell(source)
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        return file, compile(code, file, "exec", dont_inherit=True)
    except Exception as error:
        return file, f"raised {_told(error)}"


def run_cell(code: types.CodeType | str, file: str, namespace: dict[str, Any], seconds: float) -> str:
    """Run a cell as IPython would. Returns what went wrong, in words, or ""."""
    if isinstance(code, str):
        return code
    try:
        limited(seconds, lambda: exec(code, namespace), file)
    except TimeUp:
        return f"was stopped after {seconds:g} seconds"
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: the other cells are to be run
        return f"raised {_told(error)}"
    return ""


def _told(error: BaseException) -> str:
    try:
        message = (str(error).splitlines() or [""])[0][:200]
    except Exception:
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _notebook() -> dict[str, Any]:
    """The namespace of a notebook: a module __main__, a shell and checks that do nothing."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    shell = _Shell(module.__dict__)
    builtins.get_ipython = getipython.get_ipython = sys.modules["IPython"].get_ipython = lambda: shell
    builtins.display = _nothing
    stub = types.ModuleType("course_utils.checks")
    stub.check = stub.summary = _nothing
    sys.modules[stub.__name__] = sys.modules["course_utils"].checks = stub
    return module.__dict__


def _nothing(*arguments: Any, **named: Any) -> None:
    """Takes anything and does nothing."""


class _Shell:
    """Stands in for IPython: magics and `!` do nothing, but those that run a cell do run it."""

    def __init__(self, namespace: dict[str, Any]):
        self.user_ns = namespace

    def run_line_magic(self, name: str, line: str, *rest: Any, **named: Any) -> None:
        if name == "time":
            exec(line, self.user_ns)

    def run_cell_magic(self, name: str, line: str, cell: str, *rest: Any, **named: Any) -> None:
        if name in ("time", "capture"):
            exec(TransformerManager().transform_cell(cell), self.user_ns)

    def getoutput(self, *arguments: Any, **named: Any) -> list[str]:
        return []

    def __getattr__(self, name: str) -> Callable:
        return _Quiet()


class _Quiet:
    """Has every attribute, and each of them does nothing when called."""

    def __getattr__(self, name: str) -> _Quiet:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> None:
        return None
