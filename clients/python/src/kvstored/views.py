"""Blocks as arrays, without a copy."""

# pyright: strict, reportPrivateUsage=false

import warnings
from typing import Any, Optional, Sequence


def as_numpy(block: memoryview, dtype: Any, shape: Optional[Sequence[int]] = None) -> Any:
    """A numpy array over a block or a slot. Drop it before the lease ends."""
    numpy: Any
    import numpy  # pyright: ignore[reportMissingImports]

    array = numpy.frombuffer(block, dtype=dtype)
    return array if shape is None else array.reshape(shape)


def as_torch(block: memoryview, dtype: Any, shape: Optional[Sequence[int]] = None) -> Any:
    """A CPU tensor over a block or a slot. Drop it before the lease ends, and do
    not write into that of a block: its pages are read-only."""
    torch: Any
    import torch  # pyright: ignore[reportMissingImports]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch knows no read-only tensors
        tensor = torch.frombuffer(block, dtype=dtype)
    return tensor if shape is None else tensor.reshape(tuple(shape))
