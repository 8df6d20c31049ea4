"""The page: ``handlers`` say what happens (state in, view out), ``tabs`` hold the widgets, ``app`` serves it."""
