"""The controllers of Endpoints and EndpointSlices."""
