"""Controls to play with: thin shells of ipywidgets around functions that need no browser."""

from .attention_explorer import attention_explorer

__all__ = ["attention_explorer"]
