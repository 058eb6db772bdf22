"""How far an output is from its f64 reference."""

import torch


def rel_error(output, reference, rows):
    """||y - r|| / ||r|| over slices of `rows` of the first axis; `reference(slice)` gives the slice in f64.

    Infinite if a value is finite on one side only.
    """
    difference = torch.zeros((), dtype=torch.float64, device=output.device)
    norm = torch.zeros_like(difference)
    mismatched = torch.zeros((), dtype=torch.int64, device=output.device)
    for first in range(0, output.shape[0], rows):
        part = slice(first, first + rows)
        r = reference(part)
        y = output[part].double()
        mismatched += (torch.isfinite(y) != torch.isfinite(r)).sum()
        difference += (y - r).square_().sum()
        norm += r.square().sum()
        del r, y
    if int(mismatched) > 0:
        return float("inf")
    if float(norm) == 0.0:
        return 0.0 if float(difference) == 0.0 else float("inf")
    return float((difference / norm).sqrt())
