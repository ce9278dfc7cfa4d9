"""Mode ipvs: virtual servers, the addresses of kube-ipvs0 and sets in the kernel, and endpoints that end gracefully."""
