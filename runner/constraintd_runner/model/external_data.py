"""Writes the weights of an ONNX model into one file beside it, one tensor at a time."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

_ALIGNMENT = 4096  # a page, so that the runtime can map a tensor instead of reading it


class ExternalData:
    """An open weights file. Holds no tensor after writing it, so a conversion needs little memory."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._file = path.open("xb")

    def __enter__(self) -> ExternalData:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, name: str, values: NDArray[Any]) -> onnx.TensorProto:
        """Appends the values; returns the initializer that points to them."""
        offset = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(offset)
        self._file.write(np.ascontiguousarray(values).data)
        tensor = onnx.TensorProto(name=name, dims=values.shape)
        tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self._name), ("offset", offset), ("length", values.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor
