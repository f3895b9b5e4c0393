"""Settings that all tests share."""

from hypothesis import settings

# No deadline for one example: how fast a machine is decides on no test.
settings.register_profile("course", deadline=None)
settings.load_profile("course")
