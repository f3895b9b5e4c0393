"""Fixtures of the tests that build: a registry with one exercise, and a small repository."""

from pathlib import Path

import pytest
from tiny import Exercise, make

from course_utils.authoring import lint, notebooks


@pytest.fixture(scope="module")
def registry():
    """One exercise, 04.1, instead of the course's."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (notebooks, lint):
            patch.setattr(module, "exercises_of", lambda lesson: {"04.1": Exercise()})
        yield


@pytest.fixture
def repository(tmp_path, registry) -> Path:
    """The repository, not built."""
    return make(tmp_path)
