"""The wire between the grader and the process that runs a student's code: plain JSON and raw arrays.

A frame is two lengths (little-endian, 4 bytes each), so many bytes of JSON, and the bytes of all arrays one
after the other. The JSON holds the message, and of each array the dtype and the shape. Nothing that arrives
is trusted: lengths are held against a limit before a byte is read, shapes against the bytes that came, and
no object is made but None, bool, int, float, str, list, tuple, set, dict, and numpy's numbers and arrays.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from course_utils.questions.asking import Reply, Trouble

# The largest case of the eight lessons has 146 kB of arrays and 0.5 kB of anything else.
JSON_LIMIT = 1 << 20
ARRAYS_LIMIT = 16 << 20
DEPTH = 16  # of lists in lists
_ACCEPTED = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128"
)
DTYPES = {np.dtype(name).newbyteorder("<").str: np.dtype(name) for name in _ACCEPTED.split()}
TROUBLES = ("unanswered", "raised", "stopped", "signature", "result")
_LENGTHS = struct.Struct("<II")


class WireError(Exception):
    """What came, or what is to be sent, is no message of this wire."""


# --- values -------------------------------------------------------------------------------------------------


def pack(value: Any) -> tuple[Any, list[np.ndarray]]:
    """`value` as plain JSON, and the arrays that it refers to by their place in the list.

    Types are compared, not asked: a subclass, which could bring methods of its own, is refused.

    Raises:
        WireError: the value holds an object of another type, or is nested too deep.
    """
    arrays: list[np.ndarray] = []
    return _pack(value, arrays, DEPTH), arrays


def _pack(value: Any, arrays: list[np.ndarray], depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if depth == 0:
        raise WireError(f"a value is nested more than {DEPTH} deep")
    if kind is list:
        return [_pack(item, arrays, depth - 1) for item in value]
    if kind in (tuple, set):
        return {kind.__name__: [_pack(item, arrays, depth - 1) for item in value]}
    if kind is dict:
        return {"dict": [[_pack(part, arrays, depth - 1) for part in pair] for pair in value.items()]}
    scalar = isinstance(value, np.generic)
    if kind is np.ndarray or scalar:
        if value.dtype.newbyteorder("<").str not in DTYPES:
            raise WireError(f"an array of dtype {value.dtype} cannot be sent")
        arrays.append(np.asarray(value))
        return {"scalar" if scalar else "array": len(arrays) - 1}
    raise WireError(f"a value of type {kind.__name__} cannot be sent")


def unpack(plain: Any, arrays: Sequence[np.ndarray]) -> Any:
    """The value that `pack` took apart.

    Raises:
        WireError: `plain` is not what `pack` gives.
    """
    try:
        return _unpack(plain, arrays, DEPTH)
    except (TypeError, ValueError, IndexError) as error:
        raise WireError(f"this is no packed value: {error}") from None


def _unpack(plain: Any, arrays: Sequence[np.ndarray], depth: int) -> Any:
    if plain is None or type(plain) in (bool, int, float):
        return plain
    if type(plain) is str:
        return plain.encode("utf-8", "replace").decode()  # half a surrogate pair breaks whoever writes it
    if depth == 0:
        raise WireError(f"a value is nested more than {DEPTH} deep")
    if type(plain) is list:
        return [_unpack(item, arrays, depth - 1) for item in plain]
    if len(plain) != 1:
        raise WireError("a packed value has one tag")
    [(tag, body)] = plain.items()
    if tag == "float" and body in ("inf", "-inf", "nan"):
        return float(body)
    if tag in ("array", "scalar") and type(body) is int and body >= 0:
        return arrays[body] if tag == "array" else _scalar(arrays[body])
    if tag in ("tuple", "set", "dict") and type(body) is list:
        items = [_unpack(item, arrays, depth - 1) for item in body]
        return {"tuple": tuple, "set": set, "dict": dict}[tag](items)
    raise WireError(f"{str(tag)[:20]!r} is no tag of a packed value")


def _scalar(array: np.ndarray) -> np.generic:
    if array.shape:
        raise WireError(f"a number has no axes, but this has the shape {array.shape}")
    return array[()]


def pack_replies(replies: Sequence[Reply]) -> list[dict[str, Any]]:
    """Replies as values that `send` takes."""
    return [
        {
            "outputs": reply.outputs,
            "trouble": None if reply.trouble is None else asdict(reply.trouble),
            "printed": reply.printed,
        }
        for reply in replies
    ]


def unpack_replies(values: Any, count: int) -> list[Reply]:
    """The `count` replies that `pack_replies` made into `values`, each field of its type.

    Raises:
        WireError: there are more or fewer, or one of them is no reply.
    """
    if type(values) is not list or len(values) != count:
        raise WireError(f"{count} replies were asked for, and something else came")
    return [_reply(value) for value in values]


def _reply(value: Any) -> Reply:
    fields = _fields(value, outputs=(dict, type(None)), trouble=(dict, type(None)), printed=(str,))
    outputs, trouble = fields["outputs"], fields["trouble"]
    if (outputs is None) == (trouble is None):
        raise WireError("a reply has outputs or trouble, one of the two")
    if outputs is not None and not all(type(name) is str for name in outputs):
        raise WireError("the name of an output is a text")
    if trouble is not None:
        told = _fields(trouble, kind=(str,), message=(str,), line=(int,), source=(str,))
        if told["kind"] not in TROUBLES:
            raise WireError("a reply has trouble of an unknown kind")
        trouble = Trouble(told["kind"], told["message"][:2000], max(told["line"], 0), told["source"][:500])
    return Reply(outputs, trouble, fields["printed"][:2000])


def _fields(value: Any, **kinds: tuple[type, ...]) -> dict[str, Any]:
    if type(value) is not dict or value.keys() != kinds.keys():
        raise WireError(f"a record of {', '.join(kinds)} is wanted")
    for name, wanted in kinds.items():
        if type(value[name]) not in wanted:
            raise WireError(f"{name} is of type {type(value[name]).__name__}")
    return value


# --- frames -------------------------------------------------------------------------------------------------


def encode(message: Any) -> bytes:
    """The frame of a message.

    Raises:
        WireError: it holds what cannot be sent, or is larger than a frame may be.
    """
    plain, arrays = pack(message)
    raw = [array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    described = [[array.dtype.newbyteorder("<").str, list(array.shape)] for array in arrays]
    try:
        text = json.dumps({"message": plain, "arrays": described}, allow_nan=False).encode()
    except ValueError as error:  # a whole number of thousands of digits
        raise WireError(f"a value cannot be sent: {error}") from None
    _within(len(text), JSON_LIMIT)
    _within(sum(map(len, raw)), ARRAYS_LIMIT)
    return b"".join((_LENGTHS.pack(len(text), sum(map(len, raw))), text, *raw))


def decode(text: bytes, raw: bytes) -> Any:
    """The message of a frame.

    Raises:
        WireError: the two parts of the frame do not belong together, or are no message.
    """
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame is no JSON: {error}") from None
    if type(frame) is not dict or frame.keys() != {"message", "arrays"} or type(frame["arrays"]) is not list:
        raise WireError("a frame has a message and its arrays")
    arrays, start = [], 0
    for described in frame["arrays"]:
        dtype, shape = _described(described)
        size = math.prod(shape) * dtype.itemsize
        if start + size > len(raw):
            raise WireError("an array is longer than the bytes that came")
        arrays.append(_array(raw[start : start + size], dtype, shape))
        start += size
    if start != len(raw):
        raise WireError("more bytes came than the arrays have")
    return unpack(frame["message"], arrays)


def _described(described: Any) -> tuple[np.dtype, tuple[int, ...]]:
    if type(described) is not list or len(described) != 2 or type(described[1]) is not list:
        raise WireError("an array is described by its dtype and its shape")
    name, shape = described
    if type(name) is not str or name not in DTYPES:
        raise WireError("an array is of a dtype that is not accepted")
    if len(shape) > 16 or not all(type(size) is int and 0 <= size <= ARRAYS_LIMIT for size in shape):
        raise WireError("an array has a shape that is not accepted")
    if math.prod(max(size, 1) for size in shape) > ARRAYS_LIMIT:  # (0, 10**7, 10**7) has no bytes either
        raise WireError("an array has a shape that is not accepted")
    return DTYPES[name], tuple(shape)


def _array(raw: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "b":  # a byte that is neither 0 nor 1 would be a third truth value
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def send(connection: socket.socket, message: Any, deadline: float) -> None:
    """Send a message, until `deadline` (by time.monotonic) at the latest.

    Raises:
        WireError: it cannot be sent.
        TimeoutError: the other side did not take it in time.
        EOFError: the other side is gone.
    """
    frame = encode(message)
    connection.settimeout(_left(deadline))
    try:
        connection.sendall(frame)
    except TimeoutError:
        raise
    except OSError:
        raise EOFError("the other side is gone") from None


def receive(connection: socket.socket, deadline: float) -> Any:
    """The next message, if all of it is there by `deadline` (by time.monotonic).

    Raises:
        WireError: what came is no message. What follows it cannot be read either.
        TimeoutError: it did not come in time.
        EOFError: the other side is gone.
    """
    in_json, in_arrays = _LENGTHS.unpack(_read(connection, _LENGTHS.size, deadline))
    _within(in_json, JSON_LIMIT)
    _within(in_arrays, ARRAYS_LIMIT)
    text = _read(connection, in_json, deadline)
    return decode(text, _read(connection, in_arrays, deadline))


def _read(connection: socket.socket, count: int, deadline: float) -> bytes:
    came = bytearray()  # grows with what has come: an announcement alone takes no memory
    while len(came) < count:
        connection.settimeout(_left(deadline))
        try:
            chunk = connection.recv(min(count - len(came), 1 << 16))
        except TimeoutError:
            raise
        except OSError:
            chunk = b""
        if not chunk:
            raise EOFError("the other side is gone")
        came += chunk
    return bytes(came)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("out of time")
    return left


def _within(length: int, limit: int) -> None:
    if length > limit:
        raise WireError(f"a message of {length:,} bytes is longer than the {limit:,} that it may have")
