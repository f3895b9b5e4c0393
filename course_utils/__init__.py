"""The helper package of the attention course: models, measurements, checks and widgets."""
