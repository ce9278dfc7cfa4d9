"""The grammar of Corefiles: text to tokens to server blocks, with errors that name file, line and token.

It does not know the meaning of directives. Begin with `parse`.
"""
