#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two files of parameters that train_mnist.py has saved.

    compare_parameters.py FILE FILE --tolerance 0.001
"""

import argparse
import sys

import torch


def main():
    """Returns 0 if no parameter differs by more than the tolerance."""
    parser = argparse.ArgumentParser(description='Compare two files of saved parameters.')
    parser.add_argument('files', nargs=2)
    parser.add_argument('--tolerance', type=float, required=True,
                        help='largest allowed difference of one parameter')
    options = parser.parse_args()
    first, second = (torch.load(path) for path in options.files)
    if first.keys() != second.keys():
        print('the files hold parameters of different models')
        return 1
    name, largest = max(((name, (first[name] - second[name]).abs().max().item())
                         for name in first), key=lambda pair: pair[1])
    scale = max(value.abs().max().item() for value in first.values())
    within = largest <= options.tolerance
    print(f'largest difference of a parameter: {largest:.2e} (in {name}; parameters reach '
          f'{scale:.2f}), tolerance {options.tolerance:.0e}: '
          + ('they agree' if within else 'they DISAGREE'))
    return 0 if within else 1


if __name__ == '__main__':
    sys.exit(main())
