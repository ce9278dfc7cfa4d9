"""Server-side apply: field managers and the fields they own (meta/v1 managedFields)."""
