"""What all tests share: hypothesis does not judge speed, the machine may be busy."""

from hypothesis import settings

settings.register_profile("kdns", deadline=None)
settings.load_profile("kdns")
