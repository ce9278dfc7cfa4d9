"""A packet through the plan, in words."""
