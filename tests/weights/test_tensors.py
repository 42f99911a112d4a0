import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.errors import WeightsCorruptError
from pipeline.experience import Version
from pipeline.weights import pack, sha256, unpack, weights_key

ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(st.dictionaries(st.text(max_size=8).filter(lambda n: n != "__metadata__"), ARRAYS))
def test_tensors_come_back_as_they_were(tensors: dict[str, np.ndarray]):
    data = pack(tensors)
    again = unpack(data)
    assert set(again) == set(tensors)
    for name, array in tensors.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        np.testing.assert_array_equal(again[name], array)
    assert pack(dict(reversed(tensors.items()))) == data


def test_strides_do_not_matter():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert pack({"w": array.T.copy()}) == pack({"w": array.T})


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * 100, pack({"w": np.ones(9)})[:-1]])
def test_other_bytes_are_refused(data: bytes):
    with pytest.raises(WeightsCorruptError):
        unpack(data)


def test_a_dtype_without_a_name_is_refused():
    with pytest.raises(ValueError, match="packed"):
        pack({"w": np.array(["text"])})


def test_keys_sort_as_versions_do():
    versions = [Version(1, 9), Version(1, 10), Version(2, 0), Version(10, 5)]
    keys = [weights_key("run", version) for version in versions]
    assert keys == sorted(keys)
    assert keys[0] == "run/weights/000001-000000009.safetensors"
    assert len(sha256(b"")) == 64
