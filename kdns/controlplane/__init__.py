"""A cluster without a cluster: defaults, validation, allocation, storage semantics and controllers, without I/O."""
