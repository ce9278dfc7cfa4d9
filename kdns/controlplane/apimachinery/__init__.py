"""What every kind of object shares: the table of kinds, errors of the API, formats of field values."""
