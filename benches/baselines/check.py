"""How far an output is from its f64 reference."""

import torch


def rel_error(output, reference, rows):
    """||y - r|| / ||r|| over slices of `rows` of the first axis; `reference(slice)` gives the slice in f64.

    Infinite if a value is finite on one side only. Of a tuple of outputs, of the same first axis, the worst.
    """
    outputs = output if isinstance(output, tuple) else (output,)
    device = outputs[0].device
    difference = torch.zeros(len(outputs), dtype=torch.float64, device=device)
    norm = torch.zeros_like(difference)
    mismatched = torch.zeros((), dtype=torch.int64, device=device)
    for first in range(0, outputs[0].shape[0], rows):
        part = slice(first, first + rows)
        right = reference(part)
        for i, r in enumerate(right if isinstance(right, tuple) else (right,)):
            y = outputs[i][part].double()
            mismatched += (torch.isfinite(y) != torch.isfinite(r)).sum()
            difference[i] += (y - r).square_().sum()
            norm[i] += r.square().sum()
            del r, y
        del right
    if int(mismatched) > 0:
        return float("inf")
    return max(_ratio(d, n) for d, n in zip(difference.tolist(), norm.tolist()))


def _ratio(difference, norm):
    if norm == 0.0:
        return 0.0 if difference == 0.0 else float("inf")
    return (difference / norm) ** 0.5
