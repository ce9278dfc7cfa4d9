"""The rules of each kind: defaults, validation, allocation; `catalogue` joins them."""
