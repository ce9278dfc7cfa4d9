"""Corefile text to tokens to server blocks, with errors that name file, line and token.

It knows the grammar, and no directive's meaning.
Begin with `parse`.
"""
