"""From one proxy or mode of a node to the next, without a moment that serves nobody.

It knows every mode's row, and whose rules the kernel holds.
Begin with `io/takeover`; `io/modes` looks a mode up.
"""
