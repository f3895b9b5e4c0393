"""Controls to play with: thin shells of ipywidgets around functions that need no browser."""

from course_utils.widgets.attention_explorer import attention_explorer

__all__ = ["attention_explorer"]
