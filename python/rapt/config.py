"""What this build can do on this machine."""

from __future__ import annotations

import sys
from typing import Optional, TextIO

from rapt import _core


def show_config(file: Optional[TextIO] = None) -> None:
    """Prints version, instruction sets, threads and kernels.

    >>> show_config()  # doctest: +ELLIPSIS
    rapt ...
    """
    context = _core.Context()
    amx = _core.why_no_amx()
    lines = [
        f"rapt {_core.version()}",
        f"instruction sets: {', '.join(_core.supported_isas())} (in use: {context.isa})",
        f"threads: {context.threads} of {_core.usable_cpus()} usable CPUs",
        f"bf16 tiles (AMX): {'in use' if amx is None else 'off: ' + amx}",
    ]
    print("\n".join(lines), file=file or sys.stdout)
