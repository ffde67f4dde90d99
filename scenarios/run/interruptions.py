"""The signals that interrupt a command."""

import signal
from typing import Final

INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""From the keyboard, from what stops services and jobs, and from a terminal that is closed."""
