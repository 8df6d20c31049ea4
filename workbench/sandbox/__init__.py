"""Child processes: the base that the model worker and the data reader use, and the sandbox that runs people's code.

``child`` starts a process and asks it one thing at a time, with a deadline after which it is killed and replaced.
"""
