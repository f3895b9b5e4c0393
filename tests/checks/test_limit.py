"""The time limit: every loop is stopped, a real Ctrl-C passes, and nothing stays behind."""

import signal
import sys
import threading
import time

import pytest

from course_utils.questions.limit import TimeUp, within

PLAIN = """
def answer():
    while True:
        pass
"""
BARE_EXCEPT = """
def answer():
    while True:
        try:
            work = 1
        except:
            pass
"""
LOOP_INSIDE_BARE_EXCEPT = """
def answer():
    while True:
        try:
            while True:
                pass
        except BaseException:
            continue
"""
SLEEPING = """
import time
def answer():
    while True:
        try:
            time.sleep(100)
        except:
            pass
"""
IN_A_HELPER = """
def answer():
    def helper():
        while True:
            sum(range(100))
    while True:
        try:
            helper()
        except:
            pass
"""
FINALLY = """
def answer():
    while True:
        try:
            pass
        finally:
            continue
"""
LOOPS = {
    name: source for name, source in globals().items() if isinstance(source, str) and "def answer" in source
}


@pytest.fixture(autouse=True)
def handler_stays():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
    assert not [t for t in threading.enumerate() if t.name == "time limit of an answer"]


@pytest.mark.parametrize("loop", LOOPS)
def test_every_loop_is_stopped(loop, written):
    answer = written(LOOPS[loop])
    with pytest.raises(TimeUp):
        within(0.1, answer, answer.__code__.co_filename)


def test_stopped_without_pthread_kill(written, monkeypatch):
    monkeypatch.delattr(signal, "pthread_kill")  # as on Windows
    answer = written(BARE_EXCEPT)
    with pytest.raises(TimeUp):
        within(0.1, answer, answer.__code__.co_filename)


def test_an_answer_in_time_comes_back():
    assert within(5, lambda: 41 + 1) == 42
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 / 0)


def test_no_stray_interrupt_at_the_edge():
    """Answers that end just when their time does return or are stopped; nothing hits what comes after."""
    outcomes = set()
    for round in range(60):
        spin = 0.02 + (round % 7 - 3) * 0.0005
        try:
            started = time.perf_counter()
            outcomes.add(within(0.02, lambda s=started, d=spin: _spin(s, d)))
        except TimeUp:
            outcomes.add("stopped")
        for _ in range(2000):
            pass
    assert outcomes <= {"done", "stopped"}


def _spin(started, duration):
    while time.perf_counter() - started < duration:
        pass
    return "done"


@pytest.mark.parametrize("mine", [True, False])
def test_a_real_interrupt_passes(mine):
    """With Python's handler it is KeyboardInterrupt; another handler gets its call."""
    calls = []
    before = signal.getsignal(signal.SIGINT)
    if mine:
        signal.signal(signal.SIGINT, lambda *arguments: calls.append(arguments))
    try:
        if mine:
            assert within(5, lambda: signal.raise_signal(signal.SIGINT) or "on") == "on"
            assert len(calls) == 1
        else:
            with pytest.raises(KeyboardInterrupt):
                within(5, lambda: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)


def test_tracing_comes_back(written):
    def tracer(frame, event, argument):
        return None

    before = sys.gettrace()
    answer = written(PLAIN)
    sys.settrace(tracer)
    try:
        with pytest.raises(TimeUp):
            within(0.1, answer, answer.__code__.co_filename)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_in_another_thread_there_is_no_limit_but_an_answer():
    results = []
    thread = threading.Thread(target=lambda: results.append(within(0.01, lambda: time.sleep(0.05) or "on")))
    thread.start()
    thread.join()
    assert results == ["on"]
