"""Grading a class: collect submissions, run them in a jail, judge outside it, report."""


class GradingError(Exception):
    """A class cannot be graded, or not here; the message says why and what to do."""


CELL_SECONDS = 10.0  # the longest that one cell of a notebook may run
HIDDEN = 1  # sets of hidden inputs by default, each with as many cases as the notebook has
