"""What is known of an outbox, as commands and the page show it: one model, made in one place, without I/O.

Figures are texts here: how a number, an age or a count that is not exact is worded is decided once. A number
stands beside its text where a renderer needs it for a plural or a colour. A new figure is made in
:mod:`outbox_core.status.model`, and has a line in each renderer that shows it. Programs get figures, not
texts: :func:`outbox_core.status.snapshot.as_data` lists these apart.
"""
