"""Downloads against a server on this machine that serves, breaks off, stalls or lies."""

import gzip
import hashlib
import io
import random
import socket
import sys
import threading
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from course_utils.corpus.fetch import DownloadError, cache_folder, fetch

CONTENT = gzip.compress(random.Random(0).randbytes(50_000), mtime=0)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Server:
    """Answers each path by a function of the request handler, and keeps the requests."""

    def __init__(self):
        self.answers: dict[str, Callable] = {}
        self.requests: list[tuple[str, str | None]] = []  # (path, Range)
        self.released = threading.Event()  # set at the end: lets stalled answers go
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests.append((self.path, self.headers["Range"]))
                server.answers.get(self.path, not_found)(self)

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def close(self):
        self.released.set()
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def not_found(handler):
    handler.send_error(404)


def send(handler, content: bytes, *, status=200, length: int | None = None, **headers: str):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


def serve(content: bytes):
    """The whole file, or the range asked for."""

    def answer(handler):
        asked = handler.headers["Range"]
        if not asked:
            return send(handler, content)
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            return send(handler, b"", status=416, Content_Range=f"bytes */{len(content)}")
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        send(handler, content[start:], status=206, Content_Range=span)

    return answer


def in_turn(*answers):
    """The first answer to the first request, and so on; the last one again after that."""
    left = list(answers)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)


def break_off(handler):
    """Promises all and sends half, from where it was asked to start."""
    asked = handler.headers["Range"]
    start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    rest = CONTENT[start:]
    span = {"Content_Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"} if asked else {}
    send(handler, rest[: len(rest) // 2], status=206 if asked else 200, length=len(rest), **span)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_downloaded_once(server, tmp_path):
    server.answers["/file.gz"] = serve(CONTENT)
    target = tmp_path / "new" / "folder" / "file.gz"
    for _ in range(2):
        assert fetch(target, [f"{server.address}/file.gz"], sha256=SHA256) == target
        assert target.read_bytes() == CONTENT
    assert server.requests == [("/file.gz", None)]
    assert files(target.parent) == ["file.gz"]


def test_a_broken_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.answers["/file.gz"] = in_turn(break_off, serve(CONTENT))
    target = fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"], sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests == [("/file.gz", None), ("/file.gz", f"bytes={HALF}-")]
    assert files(tmp_path) == ["file.gz"]


def test_a_later_call_goes_on_with_the_part(server, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(CONTENT[:1000])
    server.answers["/file.gz"] = serve(CONTENT)
    assert fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"]).read_bytes() == CONTENT
    assert server.requests == [("/file.gz", "bytes=1000-")]


def test_a_connection_that_keeps_breaking_is_given_up_but_its_part_kept(server, tmp_path):
    server.answers["/file.gz"] = break_off
    with pytest.raises(DownloadError, match=rf"connection broken after [\d,]+ of {len(CONTENT):,} bytes"):
        fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"])
    assert files(tmp_path) == ["file.gz.part"]
    assert CONTENT.startswith((tmp_path / "file.gz.part").read_bytes())
    assert len(server.requests) == 5


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(b"x" * 1000)
    server.answers["/file.gz"] = lambda handler: send(handler, CONTENT)
    assert fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"]).read_bytes() == CONTENT
    assert len(server.requests) == 1, "the whole file came, so the part gives way to it at once"


def test_a_part_longer_than_the_file_starts_over(server, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(CONTENT + b"x")
    server.answers["/file.gz"] = serve(CONTENT)
    assert fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"]).read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [f"bytes={len(CONTENT) + 1}-", None]


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_a_part_of_another_file_starts_over(server, tmp_path, sha256):
    """The server's file changed between two tries: the mixture is found out, with or without a checksum."""
    (tmp_path / "file.gz.part").write_bytes(CONTENT[:20] + b"x" * 980)
    server.answers["/file.gz"] = serve(CONTENT)
    assert fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"], sha256=sha256).read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == ["bytes=1000-", None]


def test_a_wrong_range_is_refused(server, tmp_path):
    (tmp_path / "file.gz.part").write_bytes(CONTENT[:1000])
    server.answers["/file.gz"] = lambda handler: send(
        handler, CONTENT, status=206, Content_Range=f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
    )
    with pytest.raises(DownloadError, match="asked for the bytes from 1000, got 0-"):
        fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"])
    assert (tmp_path / "file.gz.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("sent", [0, 100])
def test_a_stalled_server_is_left_after_the_time_out(server, tmp_path, sent):
    def stall(handler):
        if sent:
            send(handler, CONTENT[:sent], length=len(CONTENT))
            handler.wfile.flush()
        server.released.wait(20)

    server.answers["/stalls.gz"] = stall
    server.answers["/file.gz"] = serve(CONTENT)
    with pytest.raises(DownloadError, match=r"no answer within 0\.2 s"):
        fetch(tmp_path / "file.gz", [f"{server.address}/stalls.gz"], timeout=0.2)
    addresses = [f"{server.address}/stalls.gz", f"{server.address}/file.gz"]
    assert fetch(tmp_path / "file.gz", addresses, timeout=0.2).read_bytes() == CONTENT


def test_a_trickling_server_is_left_when_patience_ends(server, tmp_path):
    """A byte now and then keeps the time-out away; what has arrived is looked at, and time is up."""

    def trickle(handler):
        send(handler, CONTENT[:1], length=len(CONTENT))
        handler.wfile.flush()
        server.released.wait(20)

    server.answers["/file.gz"] = trickle
    with pytest.raises(DownloadError, match="too slow"):
        fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"], timeout=2, patience=0)
    assert files(tmp_path) == ["file.gz.part"]


def test_the_wrong_file_is_refused_and_the_cache_untouched(server, tmp_path):
    server.answers["/file.gz"] = serve(gzip.compress(b"something else"))
    with pytest.raises(DownloadError, match=r"not the expected one \(SHA-256"):
        fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"], sha256=SHA256)
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["file.gz", "file.zip"])
def test_a_login_page_is_no_archive(server, tmp_path, name):
    server.answers["/file"] = serve(b"<html>Please log in to the wireless network</html>")
    with pytest.raises(DownloadError, match="no sound archive"):
        fetch(tmp_path / name, [f"{server.address}/file"])
    assert files(tmp_path) == []


def test_a_damaged_zip_is_refused(server, tmp_path):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("fra.txt", "Go.\tVa !\n" * 100)
    damaged = memory.getvalue().replace(b"Go.\tVa", b"Go.\tXX", 1)
    server.answers["/file.zip"] = serve(damaged)
    with pytest.raises(DownloadError, match=r"fra\.txt in the archive is damaged"):
        fetch(tmp_path / "file.zip", [f"{server.address}/file.zip"])
    server.answers["/file.zip"] = serve(memory.getvalue())
    assert fetch(tmp_path / "file.zip", [f"{server.address}/file.zip"]).read_bytes() == memory.getvalue()


def test_the_next_address_is_tried(server, tmp_path):
    server.answers["/good/file.gz"] = serve(CONTENT)
    addresses = [f"{server.address}/missing/file.gz", f"{server.address}/good/file.gz"]
    assert fetch(tmp_path / "file.gz", addresses, sha256=SHA256).read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/missing/file.gz", "/good/file.gz"]


def test_all_failures_are_told(server, tmp_path):
    with socket.socket() as unused:  # a port of our own on which nobody listens
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}/file.gz"
        with pytest.raises(DownloadError) as error:
            fetch(tmp_path / "file.gz", [closed, f"{server.address}/gone.gz"])
    message = str(error.value)
    assert "could not download file.gz" in message
    assert f"{closed}: not reachable" in message
    assert f"{server.address}/gone.gz: answered 404" in message
    assert files(tmp_path) == []


def test_a_damaged_cached_file_is_replaced(server, tmp_path):
    target = tmp_path / "file.gz"
    target.write_bytes(CONTENT[:HALF])
    with pytest.raises(DownloadError):
        fetch(target, [f"{server.address}/gone.gz"])
    assert target.read_bytes() == CONTENT[:HALF], "a failed download changes nothing"
    server.answers["/file.gz"] = serve(CONTENT)
    assert fetch(target, [f"{server.address}/file.gz"]).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_made_is_a_download_error(server, tmp_path):
    (tmp_path / "file").write_text("no folder")
    server.answers["/file.gz"] = serve(CONTENT)
    with pytest.raises(DownloadError, match="could not download"):
        fetch(tmp_path / "file" / "file.gz", [f"{server.address}/file.gz"])


def test_ctrl_c_leaves_a_part_to_go_on_from(server, tmp_path, monkeypatch):
    from course_utils.corpus import fetch as module

    class Bar(module.tqdm):
        def update(self, n=1):
            raise KeyboardInterrupt

    server.answers["/file.gz"] = serve(CONTENT)
    with monkeypatch.context() as patch:
        patch.setattr(module, "tqdm", Bar)
        with pytest.raises(KeyboardInterrupt):
            fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"])
    assert files(tmp_path) == ["file.gz.part"]
    assert fetch(tmp_path / "file.gz", [f"{server.address}/file.gz"]).read_bytes() == CONTENT


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("COURSE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "xdg" / "attention-course"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "attention-course"
    monkeypatch.setattr(sys, "platform", "win32")
    assert cache_folder() == tmp_path / "local" / "attention-course"
