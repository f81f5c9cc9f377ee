# SPDX-License-Identifier: Apache-2.0
"""What the library may be told about a tensor: wire dtype, address, shape. Pure; any thread."""

import warnings

import torch

import rueda
from rueda import _native

# Wire dtype by torch.dtype; uint16 to uint64 and 8-bit floats only where this torch has them.
_WIRE_DTYPES = {getattr(torch, name): wire for name, wire in _native.DTYPES.items()
                if isinstance(getattr(torch, name, None), torch.dtype)}
_STRIDED = torch.strided


def wire_dtype(tensor):
    """The wire dtype of a tensor that can be sent as it is.

    Raises TypeError for other objects; ValueError for a tensor that is not dense, contiguous and
    in host memory, whose memory holds the negative or conjugate values, or with a dtype that
    cannot be sent.
    """
    try:
        wire = _WIRE_DTYPES[tensor.dtype]
        if (tensor.is_cpu and tensor.layout is _STRIDED and tensor.is_contiguous()
                and not tensor.is_neg() and not tensor.is_conj()):
            return wire
    except (AttributeError, KeyError, RuntimeError):
        pass
    raise _unsuitable(tensor)


def check_sendable(tensor):
    """Raises what wire_dtype() does, but lets a tensor that is not contiguous pass."""
    if (not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided
            or tensor.device.type != 'cpu' or tensor.dtype not in _WIRE_DTYPES):
        raise _unsuitable(tensor)


def as_memory(tensor):
    """`tensor` if its memory holds its values one after another, else a copy that does."""
    return tensor.contiguous().resolve_neg().resolve_conj()


def _unsuitable(tensor):
    if not isinstance(tensor, torch.Tensor):
        return TypeError(f'expected a torch.Tensor, got {type(tensor).__name__}')
    if tensor.layout != torch.strided:
        return ValueError(f'a tensor with layout {tensor.layout} cannot be sent; use to_dense()')
    if tensor.device.type != 'cpu':
        return ValueError(f'a tensor on {tensor.device} cannot be sent; rueda reduces tensors in '
                          'host memory: use cpu()')
    if tensor.dtype not in _WIRE_DTYPES:
        return ValueError(f'dtype {tensor.dtype} cannot be sent; use one of '
                          + ', '.join(str(dtype) for dtype in _WIRE_DTYPES))
    if tensor.is_neg():
        return ValueError('a tensor with the negative bit set, e.g. the imaginary part of a '
                          'conjugate, cannot be sent; use resolve_neg()')
    if tensor.is_conj():
        return ValueError('a tensor with the conjugate bit set cannot be sent; use resolve_conj()')
    return ValueError(f'a non-contiguous tensor (shape {tuple(tensor.shape)}, strides '
                      f'{tensor.stride()}) cannot be sent; use contiguous()')


def reduce_op(average, op):
    """The reduce operation for the arguments `average` (deprecated) and `op` of a call.

    Raises ValueError when both are given or the operation is unknown. A call that has `average`
    gets here through ops.reduction(), so that the warning names the line of the script.
    """
    if average is not None:
        if op is not None:
            raise ValueError('give either op or average, not both; average is deprecated')
        warnings.warn('the argument average is deprecated; use op=hvd.Average or op=hvd.Sum',
                      DeprecationWarning, stacklevel=4)
        return rueda.Average if average else rueda.Sum
    if op is None:
        return rueda.Average
    if op in _OFFERED_OPS:
        return op
    raise ValueError(f'unknown reduce operation {op!r}')


_OFFERED_OPS = frozenset((rueda.Average, rueda.Sum, rueda.Adasum, rueda.Min, rueda.Max,
                          rueda.Product))


def scales(prescale_factor, postscale_factor):
    """The `scales` field of an operation: None when both factors are 1."""
    if prescale_factor == 1.0 and postscale_factor == 1.0:
        return None
    return float(prescale_factor), float(postscale_factor)
