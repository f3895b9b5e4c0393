"""The attacks are put together from what tests/grading hands in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "grading"))
