"""Mode ipvs: virtual servers, the addresses of kube-ipvs0, sets of addresses, and the iptables rules around them."""
