"""RDNA3 (gfx11) machine code as LLVM IR: the translator and the executor of the virtual AMD GPUs."""
