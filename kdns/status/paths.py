"""The paths of the status page, and what programs read of its responses."""

from __future__ import annotations

from typing import Final

STATUS: Final = "/status"
STYLE: Final = "/status/status.css"
SCRIPT: Final = "/status/status.js"
EXPLAIN: Final = "/status/explain"
SERVICES: Final = "/status/services"
SERVICE: Final = "/status/service"
RUNNING: Final = "/status/running"
"""What only this process knows to be wrong, for `kdns check`: a JSON list of objects with `text` and `cure`."""
PATHS: Final = (STATUS, STYLE, SCRIPT, EXPLAIN, SERVICES, SERVICE, RUNNING)
ANSWERED: Final = "Kdns-Answered"
"""The header that says whether an explained name has an answer: true or false."""
