"""The expression language of `view` and `template`: text to functions of a query."""
