"""What the tests of the checks share."""

import sys

import pytest


@pytest.fixture
def written(tmp_path):
    """A function that turns source text into the last function of a cell, with the cell's name and lines."""
    import linecache

    def written(source: str, **names):
        file = f"<cell {len(linecache.cache)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        namespace = dict(names)
        exec(compile(source, file, "exec"), namespace)
        return [value for key, value in namespace.items() if callable(value) and key not in names][-1]

    yield written
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())
