"""When the plan is applied to the node, and which Services the kernel rejects it for.

It knows a mode by the interface `io/proxier` only.
Begin with `schedule`, and `io/runner` that follows it.
"""
