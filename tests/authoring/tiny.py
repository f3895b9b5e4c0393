"""A small repository of its own: one lesson and its exercise, for tests that build."""

import dataclasses
from pathlib import Path

LESSON = """\
# %% [markdown]
# # A tiny lesson
# <!-- badge -->

# %% tags=["setup"]

# %% [markdown]
# ## What happens here

# %%
import sys

import ipywidgets
from IPython.display import display

print("progress", file=sys.stderr)
print("a line")
display(ipywidgets.IntSlider())
slider = ipywidgets.IntSlider()._repr_mimebundle_()
display(slider | {"text/html": '<img alt="a dot" src="data:image/png;base64,AA==">'}, raw=True)
print("another line")

# %%
from course_utils.claims import claim

claim("04.1", "Two and two are four.", holds=2 + 2 == 4, measured=f"{2 + 2}")

# %% tags=["raises-exception"]
from course_utils import runtime

runtime.by_scale(1)
"""

SOLUTION = '''\
# %% [markdown]
# # Tiny exercises
# <!-- badge -->

# %% tags=["setup"]
from course_utils import runtime

device = runtime.start("04", needs="nothing")

# %% [markdown]
# ## Twice
# <details><summary>Hint 1</summary>Add.</details>

# %% tags=["exercise:04.1"]
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    secret = x
    return x + secret
    ### END SOLUTION

# %%
print("scratch")

# %% tags=["nbval-check-output", "check:04.1"]
print("04.1 twice: 3 of 3 points" if double(2) == 4 else "04.1 twice: 0 of 3 points")

# %% tags=["nbval-check-output", "summary"]
print("all right")
'''

PYPROJECT = '[project]\nname = "x"\n[project.urls]\nrepository = "https://github.com/someone/course/"\n'


@dataclasses.dataclass(frozen=True)
class Exercise:
    """As much of an exercise of the registry as the builder looks at."""

    id: str = "04.1"
    function: str = "double"
    points: int = 3


def make(root: Path, lesson: str = LESSON, solution: str = SOLUTION) -> Path:
    """Writes the repository's texts."""
    for folder in ("notebooks", "solutions", "exercises"):
        (root / folder).mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (root / "notebooks" / "04_tiny.py").write_text(lesson, encoding="utf-8")
    (root / "solutions" / "04_tiny.py").write_text(solution, encoding="utf-8")
    return root
