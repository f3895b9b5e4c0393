import time

import pytest

from course_utils.probes import compare, seconds


def test_functions_are_called_in_turn_and_once_more_than_counted():
    calls = []
    found = compare({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == ["a", "b"] * 4 and set(found) == {"a", "b"}


def test_the_median_forgets_one_slow_call():
    pauses = iter([0.0, 0.0, 0.2, 0.0])
    assert seconds(lambda: time.sleep(next(pauses)), repeats=3) < 0.1


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        seconds(lambda: None, repeats=0)
