"""The rules of each resource group: defaults, validation, allocation; `strategy.py` joins them."""
