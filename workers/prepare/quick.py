"""Pillow's smooth filters, very nearly, at OpenCV's speed: a short blur, then interpolation between pixels.

Pillow widens a filter by the scale so that no pixel is skipped; OpenCV doesn't, and is some five times faster.
A blur of a few taps, fitted to the scale, makes up for most of the difference. This module owns the fit, which is
pure arithmetic on weights, and says how large the rest is; it must not decide whether that is good enough.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import cv2
import numpy as np

from jobs.spec import Interpolation
from workers.prepare.geometry import Window

Array = np.ndarray[Any, Any]
_Kernel = Callable[[Array], Array]

_PHASES: Final = 16
_SCALE_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to scale along one axis: blur with `taps`, then interpolate in the manner of `flag`.

    `drift` is how far the result is from Pillow's, on average, for each level by which neighbouring pixels differ.
    """

    flag: int
    taps: tuple[float, ...]
    drift: float


@lru_cache(maxsize=1024)
def recipes(interpolation: Interpolation, scale_steps: int) -> tuple[Recipe, ...]:
    """Ways to scale by `scale_steps`/64 pixels to one with one of the `SMOOTH` filters, the fastest first.

    The n-th has the same `flag` at every scale.
    """
    scale = max(scale_steps / _SCALE_STEPS, 1.0)  # Pillow doesn't narrow a filter to enlarge
    reach = int(scale + 1.2)  # one more tap gains next to nothing, one less loses half
    plain = _fit(interpolation, scale, cv2.INTER_LINEAR, 0)
    return plain, *(_fit(interpolation, scale, flag, reach) for flag in _INTERPOLATIONS)


def steps(scale: float) -> int:
    """The scale as `recipes` takes it, so that pictures of nearly the same size share a fit."""
    return round(scale * _SCALE_STEPS)


def _fit(interpolation: Interpolation, scale: float, flag: int, reach: int) -> Recipe:
    """The symmetric blur of 2 * reach + 1 taps whose effect comes closest to the filter's, over all phases.

    An output pixel lies at some phase between two input pixels; there the filter gives each input pixel a weight.
    Interpolating a blurred picture gives other weights, linear in the taps: a least-squares problem.
    """
    kernel, support = _FILTERS[interpolation]
    width = int(np.ceil(support * scale)) + reach + 2
    inputs = np.arange(-width, width + 1)
    distances = inputs - ((np.arange(_PHASES) + 0.5) / _PHASES)[:, None]
    wanted = kernel(distances / scale)
    wanted /= wanted.sum(axis=1, keepdims=True)
    between = _INTERPOLATIONS[flag]
    effects = [between(distances)] + [between(distances - k) + between(distances + k) for k in range(1, reach + 1)]
    design = np.stack([effect.ravel() for effect in effects], axis=1)
    half = np.linalg.lstsq(design, wanted.ravel(), rcond=None)[0] if reach else np.ones(1)
    half /= half[0] + 2 * half[1:].sum()
    # Seen as a sum over the steps between neighbours, not over pixels: that is what pictures are made of.
    errors = np.cumsum((design @ half).reshape(wanted.shape) - wanted, axis=1)
    drift = float(np.sqrt((errors**2).sum(axis=1).mean()))
    return Recipe(flag, tuple(np.concatenate((half[:0:-1], half)).tolist()), drift)


def scale_by(pixels: Array, scale: tuple[float, float], wanted: Window, recipe_x: Recipe, recipe_y: Recipe) -> Array:
    """The whole picture [height, width, channels], scaled to one pixel for `scale` (across, down) pixels of it.

    Outside the wanted window the result is undefined.
    """
    across, down = scale
    if len(recipe_x.taps) > 1 or len(recipe_y.taps) > 1:
        rows = _needed(wanted.top, wanted.height, down, recipe_y)
        columns = _needed(wanted.left, wanted.width, across, recipe_x)
        soft = np.empty_like(pixels)
        cv2.sepFilter2D(
            pixels[rows, columns],
            -1,
            np.array(recipe_x.taps, np.float32),
            np.array(recipe_y.taps, np.float32),
            dst=soft[rows, columns],
            borderType=cv2.BORDER_REPLICATE,
        )
        pixels = soft
    scaled = np.asarray(cv2.resize(pixels, None, fx=1 / across, fy=1 / down, interpolation=recipe_x.flag))
    return scaled if scaled.ndim == 3 else scaled[:, :, None]


def _needed(start: int, length: int, scale: float, recipe: Recipe) -> slice:
    """The pixels that interpolation and blur look at for a stretch of output."""
    margin = len(recipe.taps) + 2
    return slice(max(int(start * scale) - margin, 0), int((start + length) * scale) + margin)


def _triangle(x: Array) -> Array:
    return np.where(np.abs(x) < 1, 1 - np.abs(x), 0)


def _cubic(a: float) -> _Kernel:
    def kernel(x: Array) -> Array:
        x = np.abs(x)
        inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
        outer = a * (x**3 - 5 * x**2 + 8 * x - 4)
        return np.where(x < 1, inner, np.where(x < 2, outer, 0))

    return kernel


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: Final[Mapping[Interpolation, tuple[_Kernel, int]]] = MappingProxyType(
    {"bilinear": (_triangle, 1), "bicubic": (_cubic(-0.5), 2), "lanczos": (_lanczos, 3)}
)
"""Pillow's filters and how far they reach in output pixels."""

_INTERPOLATIONS: Final[Mapping[int, _Kernel]] = MappingProxyType(
    {cv2.INTER_LINEAR: _triangle, cv2.INTER_CUBIC: _cubic(-0.75)}
)
"""OpenCV's."""

SMOOTH: Final = frozenset(_FILTERS)
"""The filters that can be had this way: those without hard edges."""
