"""From texts to notebooks, and what keeps both in order: build, check, lint."""


class AuthoringError(Exception):
    """Something is wrong with a text, a notebook or the repository; the message says where and what to do."""
