import random

import numpy as np
import pytest
import torch

from course_utils import runtime


@pytest.fixture
def outside(monkeypatch):
    """An environment without any variable that the module reads."""
    for name in ("COURSE_SCALE", "COURSE_QUIET", "CI", "COLAB_RELEASE_TAG", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_scale_is_class_unless_asked(outside):
    assert runtime.scale() == "class"
    assert runtime.by_scale(class_=1, full=2) == 1
    outside.setenv("COURSE_SCALE", "full")
    assert runtime.scale() == "full"
    assert runtime.by_scale(class_=1, full=2) == 2


def test_a_scale_that_does_not_exist_names_the_choices(outside):
    outside.setenv("COURSE_SCALE", "huge")
    with pytest.raises(ValueError, match=r"'huge'.*'class'.*'full'"):
        runtime.scale()


def test_seed_repeats_every_source_of_chance():
    def draws():
        generator = runtime.seed(7)
        return (
            random.random(),
            np.random.rand(),
            torch.rand(1).item(),
            torch.rand(1, generator=generator).item(),
        )

    first, second = draws(), draws()
    assert first == second
    assert runtime.seed(8).initial_seed() == 8
    assert runtime.seed(8).device.type == "cpu"
    assert torch.rand(1).item() != first[2]


@pytest.mark.parametrize(
    "name, value, quiet",
    [
        ("CI", "true", True),
        ("CI", "false", False),
        ("COURSE_QUIET", "1", True),
        ("COURSE_QUIET", "0", False),
        ("PYTEST_CURRENT_TEST", "x", True),
        ("UNRELATED", "1", False),
    ],
)
def test_under_test_follows_the_environment(outside, name, value, quiet):
    outside.delenv("PYTEST_CURRENT_TEST", raising=False)  # pytest sets it again for each phase of a test
    outside.setenv(name, value)
    assert runtime.under_test() is quiet


def test_colab_is_known_by_its_variable(outside):
    assert not runtime.on_colab()
    outside.setenv("COLAB_RELEASE_TAG", "release-colab")
    assert runtime.on_colab()


def test_device_prefers_cuda_then_mps(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert runtime.device().type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert runtime.device().type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert runtime.device().type == "cpu"


def test_start_prints_one_line(outside, capsys):
    outside.setattr(runtime, "device", lambda: torch.device("cpu"))
    assert runtime.start("04").type == "cpu"
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    for part in ("Lesson 04", "device: cpu", "scale: class", torch.__version__, np.__version__):
        assert part in lines[0]


@pytest.mark.parametrize("kind, lines", [("cpu", 2), ("mps", 1)])
@pytest.mark.parametrize("size, time", [("class", "a minute or two"), ("full", "hours")])
def test_start_says_what_takes_longer_without_a_gpu(outside, capsys, kind, lines, size, time):
    outside.setenv("COURSE_SCALE", size)
    outside.setattr(runtime, "device", lambda: torch.device(kind))
    runtime.start("04", needs="training both models")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert (f"training both models takes {time}" in printed[-1]) == (lines == 2)
    runtime.start("01")
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("wanted, threads", [(None, 1), ("3", 2)])
def test_start_takes_one_thread_unless_told_otherwise(outside, wanted, threads):
    before = torch.get_num_threads()
    outside.setattr(runtime, "device", lambda: torch.device("cpu"))
    if wanted:
        outside.setenv("OMP_NUM_THREADS", wanted)
    else:
        outside.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    try:
        runtime.start("04")
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_start_enables_widgets_on_colab_only(outside, capsys):
    calls = []
    outside.setattr(runtime, "_enable_widgets", lambda: calls.append(1))
    runtime.start("04")
    assert not calls
    outside.setenv("COLAB_RELEASE_TAG", "release-colab")
    runtime.start("04")
    assert calls == [1]


def test_autocast_is_for_cuda():
    for precision in (None, "bf16", "fp16"):
        with runtime.autocast("cpu", precision):
            assert not torch.is_autocast_enabled("cpu")
            assert not torch.is_autocast_enabled("cuda")
    with pytest.raises(ValueError, match=r"'half'.*'bf16'.*'fp16'"):
        runtime.autocast("cpu", "half")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("precision, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_autocast_halves_on_cuda(precision, dtype):
    x = torch.ones(2, 2, device="cuda")
    with runtime.autocast(x.device, precision):
        assert (x @ x).dtype == dtype
