"""Child processes: the base that the model worker and the data reader use, and the sandbox that runs people's code.

``child`` starts a process and asks it one thing at a time, with a deadline after which it is killed and replaced.
``client`` is the parent's side of the sandbox, ``isolate`` says what its process may not do. What it does with rewards,
patterns and environments stands in ``rewards.__main__``, which is started by name.
"""
