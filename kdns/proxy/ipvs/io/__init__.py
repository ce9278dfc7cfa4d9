"""Mode ipvs in the kernel: virtual servers, addresses, sets, and endpoints that end gracefully."""
