"""The wire: every value comes back as it was, and nothing that is no message gets in or takes memory."""

import contextlib
import json
import math
import socket
import struct
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from course_utils import checks
from course_utils.checks import engine
from course_utils.grading import wire
from course_utils.grading.wire import WireError
from course_utils.questions.asking import Reply, Trouble


def the_same(a, b) -> bool:
    """Equal in type, dtype, shape and value, where NaN equals NaN and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(the_same, a, b))
    if type(a) is dict:
        return list(a) == list(b) and all(the_same(value, b[key]) for key, value in a.items())
    return repr(a) == repr(b) if type(a) is float else a == b


def there_and_back(value):
    frame = wire.encode(value)
    in_json, in_arrays = struct.unpack("<II", frame[:8])
    assert len(frame) == 8 + in_json + in_arrays
    return wire.decode(frame[8 : 8 + in_json], frame[8 + in_json :])


DTYPES = [np.dtype(code) for code in "?bhiqBHIQefdFD"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays_of.arrays(
        dtype, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)
KEYS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=["Cs"])))
LEAVES = st.one_of(KEYS, st.floats(), ARRAYS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.sets(KEYS),
        st.dictionaries(KEYS, inner),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_comes_back_as_it_was(value):
    assert the_same(value, there_and_back(value))


@pytest.mark.parametrize(
    "value",
    [math.inf, -math.inf, math.nan, -0.0, np.float32(0.1), np.int64(-3), np.bool_(True), 2**200, "\0é\u2028"],
    ids=repr,
)
def test_odd_numbers_and_texts_come_back(value):
    assert the_same(value, there_and_back(value))


def test_arrays_of_any_layout_come_back_as_their_values():
    grid = np.arange(24, dtype=">f4").reshape(2, 3, 4)
    for view in (grid, grid.T, grid[::-1, :, ::2], np.broadcast_to(np.float64(2), (3, 2)), grid[:0]):
        came = there_and_back(view)
        assert came.shape == view.shape and (came == view).all()
        assert came.dtype == view.dtype.newbyteorder("=") and came.flags.writeable


@pytest.mark.parametrize("lesson", [f"{number:02d}" for number in range(1, 9)])
def test_every_case_and_right_output_of_the_course_can_be_sent(lesson):
    for exercise in checks.exercises(lesson):
        for part in engine.draw(exercise, checks.SEED):
            for inputs in part:
                assert the_same(inputs, there_and_back(inputs))
                outputs = exercise.reference(inputs)
                assert the_same(outputs, there_and_back(outputs))


class Everything(np.ndarray):
    """Equals whatever it is compared with."""

    def __eq__(self, other):
        return np.True_


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3).view(Everything),
        type("Number", (float,), {})(1.0),
        type("Text", (str,), {})("a"),
        np.array([None]),
        np.array(["a"]),
        np.array([(1, 2.0)], dtype="i4,f4"),
        np.longdouble(1),
        object(),
        print,
        10**5000,
        frozenset(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_are_refused_by_the_sender(value):
    with pytest.raises(WireError):
        wire.encode({"outputs": [value]})


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(WireError, match="deep"):
        wire.encode(value)


@pytest.mark.parametrize("size", [wire.ARRAYS_LIMIT + 8, wire.JSON_LIMIT * 2])
def test_oversized_messages_are_refused_by_the_sender(size):
    value = np.zeros(size // 8) if size > wire.ARRAYS_LIMIT else "a" * size
    with pytest.raises(WireError, match="longer"):
        wire.encode(value)


def frame(message, described=(), raw=b""):
    return json.dumps({"message": message, "arrays": list(described)}).encode(), raw


FORGED = {
    "no JSON": (b"{", b""),
    "not UTF-8": (b"\xff\xfe\x00", b""),
    "a list": (b"[]", b""),
    "no arrays": (b'{"message": 1}', b""),
    "NaN as JSON has it not": (b'{"message": {"float": NaN}, "arrays": []}', b""),
    "nested deep": (b"[" * 100_000, b""),
    "nested deeper than allowed": frame(json.loads("[" * 30 + "]" * 30)),
    "an unknown tag": frame({"pickle": "gASVAAAA"}),
    "two tags": frame({"list": [], "tuple": []}),
    "no tag": frame({}),
    "a float of a long text": frame({"float": "1" * 1000}),
    "an array that is not there": frame({"array": 0}),
    "an array from the end": frame({"array": -1}, [["<f4", [1]]], bytes(4)),
    "a set of lists": frame({"set": [[1]]}),
    "a dict of no pairs": frame({"dict": [[1, 2, 3]]}),
    "a dict with a list as key": frame({"dict": [[[1], 2]]}),
    "objects": frame({"array": 0}, [["|O", [1]]], bytes(8)),
    "a record": frame({"array": 0}, [["<i4,<f4", [1]]], bytes(8)),
    "texts": frame({"array": 0}, [["<U4", [1]]], bytes(16)),
    "dates": frame({"array": 0}, [["<M8[s]", [1]]], bytes(8)),
    "too few bytes": frame({"array": 0}, [["<f4", [3]]], bytes(8)),
    "too many bytes": frame({"array": 0}, [["<f4", [1]]], bytes(8)),
    "bytes for no array": frame(1, [], bytes(8)),
    "a negative size": frame({"array": 0}, [["<f4", [-1]]], b""),
    "a huge empty shape": frame({"array": 0}, [["<f4", [0, 10**7, 10**7]]], b""),
    "a shape past 64 bits": frame({"array": 0}, [["<f4", [2**70, 0]]], b""),
    "a shape of floats": frame({"array": 0}, [["<f4", [1.0]]], bytes(4)),
    "a shape of bools": frame({"array": 0}, [["<f4", [True]]], bytes(4)),
    "a shape of 40 axes": frame({"array": 0}, [["<f4", [1] * 40]], bytes(4)),
    "a number with axes": frame({"scalar": 0}, [["<f4", [2]]], bytes(8)),
    "a description that is none": frame({"array": 0}, ["<f4"], bytes(4)),
}


@pytest.mark.parametrize("parts", FORGED.values(), ids=FORGED)
def test_forged_frames_are_refused(parts):
    with pytest.raises(WireError):
        wire.decode(*parts)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_noise_is_refused_and_breaks_nothing(text, raw):
    with contextlib.suppress(WireError):
        wire.decode(text, raw)


def test_a_third_truth_value_becomes_true():
    came = wire.decode(*frame({"array": 0}, [["|b1", [3]]], b"\0\1\2"))
    assert came.dtype == bool and came.view(np.uint8).tolist() == [0, 1, 1]


def test_half_a_surrogate_pair_becomes_a_question_mark():
    came = wire.decode(*frame("\ud800!"))
    assert came == "?!"


REPLIES = [
    Reply({"weights": np.eye(2), "changed": ["mask"]}, None, "printed"),
    Reply(None, Trouble("raised", "Your code raised ValueError: no", 3, "raise ValueError"), ""),
]


def test_replies_come_back_as_they_were():
    first, second = wire.unpack_replies(there_and_back(wire.pack_replies(REPLIES)), 2)
    assert the_same(first.outputs, REPLIES[0].outputs) and first.printed == "printed"
    assert second == REPLIES[1]


def test_long_texts_of_a_reply_are_cut():
    long = "x" * 100_000
    [reply] = wire.unpack_replies(wire.pack_replies([Reply(None, Trouble("raised", long, 1, long), long)]), 1)
    assert max(len(reply.printed), len(reply.trouble.message), len(reply.trouble.source)) <= 2000


GOOD = wire.pack_replies(REPLIES)
BAD_REPLIES = {
    "none": [],
    "a dict": {"outputs": {}},
    "one too few": GOOD[:1],
    "neither outputs nor trouble": [GOOD[0], GOOD[0] | {"outputs": None}],
    "both": [GOOD[0], GOOD[1] | {"outputs": {}}],
    "outputs as a list": [GOOD[0], GOOD[0] | {"outputs": [1]}],
    "an output named by a number": [GOOD[0], GOOD[0] | {"outputs": {1: 2}}],
    "one field more": [GOOD[0], GOOD[0] | {"points": 10}],
    "printed as a number": [GOOD[0], GOOD[0] | {"printed": 1}],
    "trouble of a new kind": [GOOD[0], GOOD[1] | {"trouble": GOOD[1]["trouble"] | {"kind": "full marks"}}],
    "trouble on line True": [GOOD[0], GOOD[1] | {"trouble": GOOD[1]["trouble"] | {"line": True}}],
}


@pytest.mark.parametrize("values", BAD_REPLIES.values(), ids=BAD_REPLIES)
def test_replies_with_anything_odd_are_refused(values):
    with pytest.raises(WireError):
        wire.unpack_replies(values, 2)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon(seconds=5.0):
    return time.monotonic() + seconds


def test_messages_arrive_in_order_however_they_are_cut(ends):
    ours, theirs = ends
    sent = [{"n": n, "a": np.full(n * 999, n)} for n in range(4)]
    stream = b"".join(map(wire.encode, sent))

    def drip():
        for start in range(0, len(stream), 1009):
            theirs.sendall(stream[start : start + 1009])

    thread = threading.Thread(target=drip)
    thread.start()
    came = [wire.receive(ours, soon()) for _ in sent]
    thread.join()
    assert all(map(the_same, sent, came))


def test_half_a_frame_is_waited_for_no_longer_than_the_deadline(ends):
    ours, theirs = ends
    theirs.sendall(wire.encode("a long text")[:-3])
    with pytest.raises(TimeoutError):
        wire.receive(ours, soon(0.05))


def test_a_sender_that_drips_for_ever_is_not_waited_for(ends):
    ours, theirs = ends
    over = threading.Event()

    def drip():
        theirs.sendall(struct.pack("<II", 1000, 0))
        while not over.wait(0.01):
            theirs.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(TimeoutError):
        wire.receive(ours, soon(0.2))
    over.set()
    thread.join()


def test_a_sender_that_goes_away_is_an_end(ends):
    ours, theirs = ends
    theirs.sendall(wire.encode("a long text")[:-3])
    theirs.close()
    with pytest.raises(EOFError):
        wire.receive(ours, soon())
    with pytest.raises(EOFError):
        wire.send(ours, "x", soon())
        wire.send(ours, "x", soon())


@pytest.mark.parametrize("lengths", [(wire.JSON_LIMIT + 1, 0), (2, wire.ARRAYS_LIMIT + 1), (2**32 - 1,) * 2])
def test_an_announcement_that_is_too_large_is_refused_before_a_byte_is_read(ends, lengths):
    ours, theirs = ends
    theirs.sendall(struct.pack("<II", *lengths))
    with pytest.raises(WireError, match="longer"):
        wire.receive(ours, soon(0.05))


def test_a_reader_that_reads_nothing_is_not_waited_for(ends):
    ours, _theirs = ends
    with pytest.raises(TimeoutError):
        wire.send(ours, np.zeros(wire.ARRAYS_LIMIT // 8), soon(0.05))
