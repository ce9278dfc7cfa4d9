"""Mode ipvs and random Services that change: what the trace says of a packet is what the kernel does with it."""

from test_agreement import test_trace_and_kernel_agree

__all__ = ["test_trace_and_kernel_agree"]
