"""Grading a class: collect submissions, run them in a jail, judge outside it, report."""
