# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments that name and group the parameters of an optimizer. Pure; any thread."""

import torch


def names_of(optimizer, named_parameters):
    """Names by parameter for all parameters of the optimizer; `noname.<group>.<n>` without any.

    ValueError: no pairs of name and tensor, a name that comes twice, or a parameter without one.
    """
    if named_parameters is None:
        return {parameter: f'noname.{group}.{index}'
                for group, parameters in enumerate(optimizer.param_groups)
                for index, parameter in enumerate(parameters['params'])}
    named_parameters = list(named_parameters)
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
               and isinstance(pair[1], torch.Tensor) for pair in named_parameters):
        raise ValueError('named_parameters should be a sequence of tuples (name, parameter), '
                         'usually produced by model.named_parameters().')
    names = [name for name, _ in named_parameters]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError('Parameter names in named_parameters must be unique. Found duplicates: '
                         + ', '.join(repeated))
    result = {parameter: name for name, parameter in named_parameters}
    unnamed = sum(parameter not in result for group in optimizer.param_groups
                  for parameter in group['params'])
    if unnamed:
        raise ValueError('named_parameters was specified, but one or more model parameters were '
                         f'not named: {unnamed} parameters of the optimizer.')
    own = {id(parameter) for group in optimizer.param_groups for parameter in group['params']}
    return {parameter: name for parameter, name in result.items() if id(parameter) in own}


def groups_of(groups, trained, names):
    """Explicit lists of parameters from the argument `groups`. ValueError for other things."""
    if groups is None or isinstance(groups, bool):
        groups = groups or 0
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError('groups should be a non-negative integer or a list of list of '
                             f'torch.Tensor, not {groups}')
        count = min(groups, len(trained))
        return [trained[len(trained) * index // count:len(trained) * (index + 1) // count]
                for index in range(count)]
    if not (isinstance(groups, (list, tuple))
            and all(isinstance(group, (list, tuple)) for group in groups)):
        raise ValueError('groups should be a non-negative integer or a list of list of '
                         f'torch.Tensor, not {type(groups).__name__}')
    seen = set()
    for parameter in (parameter for group in groups for parameter in group):
        if not isinstance(parameter, torch.Tensor) or parameter not in names:
            raise ValueError('groups must consist of lists of parameters of the optimizer')
        if parameter in seen:
            raise ValueError(f'parameter {names[parameter]} is in groups more than once')
        seen.add(parameter)
    known = set(trained)
    return [[parameter for parameter in group if parameter in known] for group in groups]
