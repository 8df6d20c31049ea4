"""Models on disk and on the Hub, policies and reward models alike: ``find`` says where one is, ``weights`` reads it.

``policies.load`` makes policies of what is read here, ``rewards.models`` reward models. The package itself imports no
torch, and neither does ``find``.
"""
