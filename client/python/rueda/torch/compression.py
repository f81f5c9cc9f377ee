# SPDX-License-Identifier: Apache-2.0
"""Compressors for PyTorch tensors: Compression.none, fp16 as in Horovod, and bf16."""

import torch

from rueda.compression import Compressor, NoneCompressor


class _Narrower(Compressor):
    """Sends floating-point tensors in `wire_dtype`. 8-bit ones and other types go as they are."""

    wire_dtype = None

    @classmethod
    def compress(cls, tensor):
        """Returns (copy in the wire dtype, original dtype)."""
        if not tensor.dtype.is_floating_point or tensor.element_size() < 2:
            return tensor, None
        return tensor.to(cls.wire_dtype), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        """Returns the tensor in the dtype `ctx`."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Narrower):
    """float16: 11 bits of precision, up to 65,504."""

    wire_dtype = torch.float16


class BF16Compressor(_Narrower):
    """bfloat16: 8 bits of precision, the range of float32. For gradients that overflow float16."""

    wire_dtype = torch.bfloat16


class Compression:
    """The compressors that come with the package."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
