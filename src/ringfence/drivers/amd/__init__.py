"""The driver of AMD GPUs behind KFD."""
