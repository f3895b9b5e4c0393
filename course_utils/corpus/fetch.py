"""Downloads into a cache: resumable, bounded in time, and never leaving half a file under the final name."""

import contextlib
import gzip
import hashlib
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from tqdm.auto import tqdm

from course_utils.runtime import under_test

_CHUNK = 1 << 16
_TRIES = 5  # connections to one address, each going on where the last broke off
# Some servers turn away the standard library's own name.
_HEADERS = {"User-Agent": "attention-course"}


class DownloadError(OSError):
    """No address gave the file; the message says what each of them answered."""


def cache_folder() -> Path:
    """Where downloads are kept: COURSE_CACHE, else the platform's cache folder / attention-course."""
    if chosen := os.environ.get("COURSE_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attention-course"


def fetch(
    target: Path,
    addresses: Sequence[str],
    *,
    sha256: str | None = None,
    timeout: float = 15,
    patience: float = 600,
) -> Path:
    """`target`, downloaded from the first address that gives it, unless it is there already.

    A file counts only when its SHA-256 is the wished one (where known) and its .zip or .gz archive is sound,
    which also keeps the login page of a wireless network out of the cache. Until then it grows as
    `target` + ".part", from which a later call goes on. `timeout` (seconds) bounds each wait for the
    server, `patience` (seconds) the whole download.

    Raises DownloadError when no address gives a sound file or the cache can't be written.
    """
    part = target.with_name(target.name + ".part")
    deadline = time.monotonic() + patience
    failures = []
    try:
        if target.exists() and not _flaw(target, sha256):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            failure = _download(address, part, sha256, timeout, deadline)
            if failure is None:
                os.replace(part, target)
                return target
            failures.append(f"{address}: {failure}")
    except OSError as error:
        failures.append(f"{target.parent}: {error.strerror or error}")
    raise DownloadError(f"could not download {target.name} ({'; '.join(failures)})")


def _download(address: str, part: Path, sha256: str | None, timeout: float, deadline: float) -> str | None:
    """Completes `part` from one address; returns why it failed, or None for a sound file.

    A broken connection is taken up again as long as each try brings more; an unsound file is thrown away,
    and tried once more from the start if it was made of several tries (the server's file may have changed).
    """
    name = part.name.removesuffix(".part")
    with tqdm(desc=name, unit="B", unit_scale=True, leave=False, disable=under_test()) as bar:
        for _ in range(_TRIES):
            before = _size(part)
            failure = _transfer(address, part, timeout, deadline, bar)
            if failure is None:
                failure = _flaw(part, sha256)
                if failure is None:
                    return None
                part.unlink()
                if before == 0:
                    break
            elif _size(part) <= before or time.monotonic() > deadline:
                break
    return failure


def _transfer(address: str, part: Path, timeout: float, deadline: float, bar: tqdm) -> str | None:
    """One connection, appended to `part`; returns why it ended early, or None when all bytes came."""
    have = _size(part)
    request = urllib.request.Request(address, headers=_HEADERS)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            start, total = _extent(response, have)
            return _save(response, part, start, total, deadline, bar)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the part is no beginning of the server's file
            part.unlink(missing_ok=True)
            return _transfer(address, part, timeout, deadline, bar) if have else "answered 416"
        return f"answered {error.code} {error.reason}"
    except TimeoutError:
        return f"no answer within {timeout:g} s"
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return f"no answer within {timeout:g} s"
        return f"not reachable ({error.reason})"
    except (HTTPException, ConnectionError, ssl.SSLError) as error:
        return f"connection broken ({error or type(error).__name__})"


def _extent(response: HTTPResponse, have: int) -> tuple[int, int | None]:
    """Where the answer's bytes start in the file, and the size of the whole file where it is told."""
    if response.status == 206:
        span, _, size = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        start = span.partition("-")[0]
        if start == str(have):
            return have, int(size) if size.isdigit() else None
        raise HTTPException(f"asked for the bytes from {have}, got {span or 'no Content-Range'}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None  # the whole file, from the start


def _save(
    response: HTTPResponse, part: Path, start: int, total: int | None, deadline: float, bar: tqdm
) -> str | None:
    """Writes the answer's bytes from `start` on; returns why it ended early, or None."""
    bar.reset(total)
    bar.initial = bar.n = start
    with open(part, "ab" if start else "wb") as file:
        # read1 returns what has arrived, so that a slow server can't keep the deadline from being seen.
        while chunk := response.read1(_CHUNK):
            file.write(chunk)
            bar.update(len(chunk))
            if time.monotonic() > deadline:
                return "too slow, time is up"
    if total is not None and _size(part) < total:
        return f"connection broken after {_size(part):,} of {total:,} bytes"
    return None


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _flaw(path: Path, sha256: str | None) -> str | None:
    """What is wrong with a complete file, or None."""
    if sha256 and (found := hashlib.sha256(path.read_bytes()).hexdigest()) != sha256:
        return f"the file is not the expected one (SHA-256 {found[:12]}… instead of {sha256[:12]}…)"
    name = path.name.removesuffix(".part")
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            return f"{damaged} in the archive is damaged" if damaged else None
        if name.endswith(".gz"):
            with gzip.open(path) as file:
                while file.read(_CHUNK):
                    pass
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"the file is no sound archive ({error})"
    return None
