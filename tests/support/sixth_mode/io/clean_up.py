"""What the mode may have left."""

from collections.abc import Sequence
from typing import Final

from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Footprint, RuleAuthors

GREETINGS: Final = ["greeting 1", "greeting 2"]


async def remove_greetings(settings: Settings, kept: Footprint) -> Sequence[str]:
    del settings
    stale = [greeting for greeting in GREETINGS if greeting != kept.part(str)]
    for greeting in stale:
        GREETINGS.remove(greeting)
    return stale


async def authors() -> RuleAuthors:
    return RuleAuthors(has_kdns=bool(GREETINGS))


CLEAN_UPS: Final = (CleanUp(remove_greetings, authors),)
