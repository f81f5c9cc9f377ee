# SPDX-License-Identifier: Apache-2.0
"""Compressors for PyTorch tensors, named as in Horovod: Compression.none, Compression.fp16."""

import torch

from rueda.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16. 8-bit ones and other types go as they are."""

    wire_dtype = torch.float16

    @staticmethod
    def compress(tensor):
        """Returns (float16 copy, original dtype)."""
        if not tensor.dtype.is_floating_point or tensor.element_size() == 1:
            return tensor, None
        return tensor.to(torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        """Returns the tensor in the dtype `ctx`."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The compressors that come with the package."""

    none = NoneCompressor
    fp16 = FP16Compressor
