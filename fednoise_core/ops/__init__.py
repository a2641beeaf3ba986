"""Tensor and array functions for methods. They do not depend on clients."""
