"""The page: ``handlers`` say what happens (plain state in, plain view out), ``tabs`` hold the widgets, ``app`` serves it."""
