"""Resource limits: the layer that every POSIX system has. See setrlimit(2), https://man7.org/linux/man-pages/man2/setrlimit.2.html"""

from __future__ import annotations

import resource

MEMORY = 2 << 30
"""Bytes of address space."""
FILE = 16 << 20
"""Bytes of one file."""
DESCRIPTORS = 64


def restrict() -> str | None:
    """Set the limits, lower ones staying as they are; returns which of them the system refused."""
    limits = {
        "memory": (resource.RLIMIT_AS, MEMORY),
        "file size": (resource.RLIMIT_FSIZE, FILE),
        "open files": (resource.RLIMIT_NOFILE, DESCRIPTORS),
        "core files": (resource.RLIMIT_CORE, 0),
    }
    refused = []
    for name, (limit, value) in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # macOS takes no limit of the address space
            refused.append(name)
    return f"no limit of {', '.join(refused)}: this system takes none" if refused else None
