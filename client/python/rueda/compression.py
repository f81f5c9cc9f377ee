# SPDX-License-Identifier: Apache-2.0
"""Compression of gradients before they are reduced. Framework independent; any thread.

A compressor is a class with static methods `compress(tensor) -> (tensor, context)` and
`decompress(tensor, context) -> tensor`. Scripts may write their own subclass of Compressor.
"""


class Compressor:
    """Interface of a compressor."""

    @staticmethod
    def compress(tensor):
        """Returns (what to send, a context for decompress). All ranks must send equal shapes."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor, ctx):
        """Returns the tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor
