"""Parsed numbers into raw elements: exact rounding at the edges of each type."""

from fractions import Fraction

import numpy as np
import pytest

from api.formats import FormatError
from api.formats.values import bf16_words, data_from_values, shape_of_nested
from jobs.datatypes import Datatype, DatatypeError

LARGEST_BF16 = float.fromhex("0x1.fep127")


def bf16_value(word: int) -> float:
    """The number that a raw BF16 word stands for."""
    return float(np.array([word << 16], "<u4").view("<f4")[0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_bf16_number_and_every_tie_between_two_is_rounded_to_nearest_even(sign: float) -> None:
    words = np.arange(0x7F80, dtype=np.uint32)
    numbers = (words << 16).view(np.float32).astype(np.float64)
    ties = (numbers[:-1] + numbers[1:]) / 2  # exact: one bit more than BF16 has
    above, below = np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)
    sign_bit = 0x8000 if sign < 0 else 0
    assert np.array_equal(bf16_words(sign * numbers), words | sign_bit)
    assert np.array_equal(bf16_words(sign * above), words[1:] | sign_bit)
    assert np.array_equal(bf16_words(sign * below), words[:-1] | sign_bit)
    assert np.array_equal(bf16_words(sign * ties), (words[:-1] + (words[:-1] & 1)) | sign_bit)


def test_bf16_overflows_where_the_next_number_would_be_nearer() -> None:
    tie = Fraction(LARGEST_BF16) + Fraction(2) ** 119
    below, at = np.nextafter(float(tie), 0), float(tie)
    assert bf16_words(np.array([below]))[0] == 0x7F7F
    assert bf16_words(np.array([at]))[0] == 0x7F80
    assert data_from_values(Datatype.BF16, [1], [float(below)]) == b"\x7f\x7f"
    with pytest.raises(FormatError, match="element 0 is"):
        data_from_values(Datatype.BF16, [1], [at])


def test_numbers_too_small_for_any_float_become_zero_and_keep_their_sign() -> None:
    assert data_from_values(Datatype.BF16, [2], [5e-324, -5e-324]) == b"\0\0\0\x80"
    assert data_from_values(Datatype.FP16, [2], [1e-300, -1e-300]) == b"\0\0\0\x80"
    assert data_from_values(Datatype.FP32, [2], [1e-300, -1e-300]) == b"\0\0\0\0\0\0\0\x80"


@pytest.mark.parametrize(
    "datatype", [item for item in Datatype if item.numpy.kind in "iu" and item is not Datatype.BF16]
)
def test_integers_reach_both_ends_of_their_range(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.numpy)
    ends = [int(limits.min), int(limits.max)]
    assert np.frombuffer(data_from_values(datatype, [2], ends), datatype.numpy).tolist() == ends
    for outside in (ends[0] - 1, ends[1] + 1):
        with pytest.raises(FormatError, match="element 1 is"):
            data_from_values(datatype, [2], [0, outside])


def test_integers_are_taken_for_floats_and_rounded_once() -> None:
    assert data_from_values(Datatype.FP64, [1], [2**53 + 1]) == np.array([2.0**53]).tobytes()
    assert data_from_values(Datatype.FP32, [2], [1, 2**24 + 1]) == np.array([1, 2**24], "<f4").tobytes()


def test_an_impossible_shape_is_refused_before_any_work() -> None:
    for shape in ([-1], [2**31 + 1], [2**62, 2**62]):
        with pytest.raises(DatatypeError):
            data_from_values(Datatype.FP32, shape, [])


def test_the_shape_of_nested_arrays_is_read_from_their_first_elements() -> None:
    assert shape_of_nested([]) == (0,)
    assert shape_of_nested([1, 2]) == (2,)
    assert shape_of_nested([[], []]) == (2, 0)
    assert shape_of_nested([[["a"]]]) == (1, 1, 1)
