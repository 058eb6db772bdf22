"""Rivals of Atlas on one GPU.

timing   how everything is timed, and the record of the machine
check    how far an output is from its f64 reference
kernels  Triton kernels
works    the pieces of work, each with its reference and its rivals
atlas    runs `atlas bench` between the rivals
"""
