"""The rules of each resource group: defaults, validation, allocation; `catalogue.py` joins them."""
