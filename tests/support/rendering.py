"""Plans as the rules of their modes."""

from kdns.proxy.modes import MODES
from kdns.proxy.plan.plan import Plan
from kdns.proxy.settings.settings import Settings


def rendered(plan: Plan, settings: Settings = Settings()) -> str:  # noqa: B008 - it is frozen
    return MODES[plan.ipv4.mode.name].text(plan, settings)
