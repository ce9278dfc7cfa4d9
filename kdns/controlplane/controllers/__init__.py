"""The controllers that Services need, of kube-controller-manager, kube-scheduler and kubelet, without any I/O."""
