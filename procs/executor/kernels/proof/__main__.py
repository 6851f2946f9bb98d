"""The program that `fourstroke kernels` starts.

What to do comes as JSON in the only argument: {"action": "show", "report" or "check", "archs": [names],
"kernels": [patterns]}.
Findings go to standard output; the last word, in one line, to standard error.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from pathlib import Path

from .....common.errors import ConfigError, FourstrokeError, TargetMissed
from .....common.types import EXIT_FAILED, EXIT_REFUSED

_DOCS = Path(__file__).resolve().parents[4] / "docs"


def main(argument: str) -> None:
    """Do what is asked. Raises FourstrokeError."""
    if importlib.util.find_spec("triton") is None:
        raise ConfigError("the kernels are compiled by Triton, which is not installed: pip install 'triton>=3.9,<3.10'")
    from .command import run  # here: it imports Triton

    order = json.loads(argument)
    run(order["action"], order["archs"], order["kernels"], _DOCS)


if __name__ == "__main__":
    # So that the processes that compile are told to end, too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        main(sys.argv[1])
    except FourstrokeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_FAILED if isinstance(error, TargetMissed) else EXIT_REFUSED)
