"""The parts that all kinds share: the table of kinds, API errors, formats of field values."""
