"""The paths of the status page, and what programs read of its responses."""

from __future__ import annotations

from typing import Final

STATUS: Final = "/status"
STYLE: Final = "/status/status.css"
SCRIPT: Final = "/status/status.js"
EXPLAIN: Final = "/status/explain"
SERVICES: Final = "/status/services"
SERVICE: Final = "/status/service"
PATHS: Final = (STATUS, STYLE, SCRIPT, EXPLAIN, SERVICES, SERVICE)
ANSWERED: Final = "Kdns-Answered"
"""The header that says whether an explained name has an answer: true or false."""
