"""How pixels become a model's numbers: the order of the channels and one table of 256 values for each.

The table holds the whole of scale, mean, std and datatype, so that every value is computed once, exactly.
"""

from typing import Any, Final

import numpy as np

from jobs.datatypes import Datatype
from jobs.spec import ColorOrder, ImageOptions

CHANNELS: Final[dict[ColorOrder, int]] = {"RGB": 3, "BGR": 3, "GRAY": 1}
_FLOATS: Final = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64})
Array = np.ndarray[Any, Any]


def value_table(datatype: Datatype, options: ImageOptions) -> Array | None:
    """The value of each of the 256 levels, per channel: [channels, 256] of the datatype; None if it is the level.

    `(level * scale - mean) / std` in 32-bit floats, then cast; BF16 is rounded to nearest even, integers are
    rounded to nearest even and kept inside their range.
    """
    levels = np.arange(256, dtype=np.float32)
    means, stds = (
        np.array(numbers, np.float32).reshape(-1, 1) for numbers in (options.mean or (0,), options.std or (1,))
    )
    values = (levels * np.float32(options.scale) - means) / stds
    if datatype is Datatype.UINT8 and np.array_equal(values, np.broadcast_to(levels, values.shape)):
        return None
    return np.broadcast_to(_cast(values, datatype), (CHANNELS[options.color], 256))


def write(pixels: Array, options: ImageOptions, table: Array | None, out: Array) -> None:
    """Write pixels [height, width, 1 or 3] (RGB) as the model's values to `out` [height, width, channels]."""
    if table is None and options.color != "BGR":
        out[...] = pixels  # one channel fills all
        return
    channels = out.shape[2]
    for channel in range(channels):
        source = channels - 1 - channel if options.color == "BGR" else channel
        plane = pixels[:, :, source if pixels.shape[2] > 1 else 0]
        # Every level is in the table: "clip" only spares numpy the check.
        out[:, :, channel] = plane if table is None else table[channel].take(plane, mode="clip")


def _cast(values: Array, datatype: Datatype) -> Array:
    if datatype in _FLOATS:
        return values.astype(datatype.numpy)
    if datatype is Datatype.BF16:
        words = values.view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(datatype.numpy)
    if datatype.numpy.kind not in "iu":
        raise ValueError(f"a picture can't be given as {datatype}")
    limits = np.iinfo(datatype.numpy)
    return np.rint(values.astype(np.float64)).clip(limits.min, limits.max).astype(datatype.numpy)
