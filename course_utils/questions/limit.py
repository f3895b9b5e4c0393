"""Stop a function that runs too long, in a notebook as anywhere else, on Linux, macOS and Windows."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimeUp(BaseException):
    """Raised in a function that has used up its time; no Exception, so `except Exception` lets it pass.

    `line` is where in the watched file the function was when its time was over, 0 if it was not there.
    """

    def __init__(self, line: int = 0):
        super().__init__(line)
        self.line = line


def within(seconds: float, function: Callable[[], Result], file: str = "") -> Result:
    """function(), or TimeUp after `seconds`.

    A thread interrupts the main thread as Ctrl-C would, again and again until the function gives way, which
    also ends loops in the source file `file` that catch everything. A real Ctrl-C goes where it always goes.
    Only the main thread can be interrupted: called from another one, the function runs without a limit.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    watch = _Watch(seconds, file)
    tracing = sys.gettrace()
    watch.previous = signal.signal(signal.SIGINT, watch.on_interrupt)
    watch.thread.start()
    try:
        watch.running = True
        return function()
    finally:
        watch.running = False  # from here on, an interrupt of ours is ignored
        try:
            watch.stop()
        finally:
            if watch.handled:
                sys.settrace(tracing)
            if watch.previous is not None:
                signal.signal(signal.SIGINT, watch.previous)


def alarmed(seconds: float, function: Callable[[], Result], file: str = "") -> Result:
    """As `within`, but by the system's own timer, which costs a tenth of a thread; not on Windows.

    Other alarms of the process are put off, and a function that sets an alarm itself loses its limit: for
    processes whose end somebody else sees to.
    """
    watch = _Watch(seconds, file)
    tracing = sys.gettrace()

    def ring(number: int, frame: FrameType | None) -> None:
        watch.sent += 1
        watch.on_interrupt(number, frame)

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        watch.running = True
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
        return function()
    finally:
        watch.running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if watch.handled:
            sys.settrace(tracing)
        if previous is not None:
            signal.signal(signal.SIGALRM, previous)


class _Watch:
    def __init__(self, seconds: float, file: str):
        self.seconds, self.file = seconds, file
        self.running = False
        self.sent = self.handled = 0  # interrupts of ours: any other is a real Ctrl-C
        self.previous: Any = None
        self.line = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True, name="time limit of an answer")

    def watch(self) -> None:
        self.over.wait(self.seconds)
        while not self.over.is_set():
            self.sent += 1
            if hasattr(signal, "pthread_kill"):  # a true signal also ends time.sleep and reads
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            else:
                _thread.interrupt_main()
            self.over.wait(0.05)

    def stop(self) -> None:
        """End the thread, and wait for an interrupt that is still under way."""
        self.over.set()
        self.thread.join()
        for _ in range(1000):
            if self.handled == self.sent:
                break
            time.sleep(0.001)

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.sent == self.handled:
            if callable(self.previous):
                self.previous(number, frame)
            elif self.previous is not signal.SIG_IGN:
                raise KeyboardInterrupt
            return
        self.handled = self.sent
        if not self.running:
            return
        # An `except:` may swallow what is raised here and go round its loop again. Tracing the answer's
        # frames raises once more on the very next line, which is the one inside that `except:`.
        sys.settrace(lambda frame, event, argument: None)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                self.line = self.line or frame.f_lineno
                frame.f_trace = self.on_line
            frame = frame.f_back
        raise TimeUp(self.line)

    def on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.running and event == "line":
            raise TimeUp(self.line)
        return self.on_line
