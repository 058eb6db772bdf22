"""Baselines of Atlas on one GPU.

timing   how everything is timed, and the record of the machine
check    how far an output is from its f64 reference
kernels  Triton kernels
work     a piece of work and its baselines; eager, compiled and graphed functions
works    the pieces of work, each with its reference and its baselines; the table of them all
omega    the Omega rule, chunk by chunk
layer    a layer: the Omega rule and attention over a window
memory   the memory's gradients, its steps with Muon, its fused read
windows  attention, sums and losses over windows
oracle   the memory's maths in f64, token by token
selftest checks baselines at small sizes on a CPU
atlas    runs `atlas bench` between the baselines
"""
