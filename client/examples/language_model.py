#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a language model with sparse gradients on the text of Python's own reference.

    python language_model.py --save one.pt
    ruedarun -np 2 python language_model.py --against one.pt

The text is what help() shows of the language, some 100,000 words that come with every Python
(pydoc_data.topics). From four words the model predicts the next one; the measure is the perplexity
on a tenth of the text that is not trained on: between how many words the model wavers.

nn.Embedding(sparse=True) gives gradients with the few rows that a batch has touched, and
DistributedOptimizer sends only those: the rows that any rank has touched come back. The optimizer
must take sparse gradients, as Adagrad, SGD and SparseAdam do.

The global batch is the same for any number of ranks. No parameter may differ by more than 1e-4 from
its value in one process, and the perplexity by no more than 0.01.
"""

import collections
import math
import pydoc_data.topics
import re
import sys

import torch
import torch.nn.functional as functional

import common
import rueda.torch as hvd

GLOBAL_BATCH = 480
CONTEXT = 4
WORDS = 2000  # The most frequent ones; all others are the word number 0.
TOLERANCE = {'parameters': common.within(1e-4), 'perplexity': common.within(0.01)}


class Model(torch.nn.Module):
    """Embeddings of the last words, a hidden layer, and a score for each word."""

    def __init__(self, width=32, hidden=64):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, width, sparse=True)
        self.hidden = torch.nn.Linear(CONTEXT * width, hidden)
        self.output = torch.nn.Linear(hidden, WORDS)

    def forward(self, contexts):
        return self.output(torch.tanh(self.hidden(self.words(contexts).flatten(1))))


def load_text():
    """(contexts [n, CONTEXT], next words [n]) twice: for training, and for the test."""
    topics = pydoc_data.topics.topics
    text = '\n'.join(topics[name] for name in sorted(topics))
    words = re.findall(r"[a-z_]+|[0-9]+|[^\sa-z0-9]", text.lower())
    frequent = collections.Counter(words).most_common(WORDS - 1)
    numbers = {word: number for number, (word, _) in enumerate(frequent, 1)}
    text = torch.tensor([numbers.get(word, 0) for word in words])
    common.say(f'{len(text):,} words of the Python reference, {hvd.size()} rank(s), '
               f'PyTorch {torch.__version__}')
    windows = text.unfold(0, CONTEXT + 1, 1)
    contexts, following = windows[:, :CONTEXT], windows[:, CONTEXT]
    # One window of twenty, and their neighbours, would be known from training: a whole tenth.
    end = len(text) * 9 // 10
    return (contexts[:end], following[:end]), (contexts[end + CONTEXT:], following[end + CONTEXT:])


@torch.no_grad()
def perplexity(model, contexts, following):
    """Of the model on a text, of which each rank reads a part."""
    own = slice(hvd.rank(), None, hvd.size())
    loss = functional.cross_entropy(model(contexts[own]), following[own], reduction='sum').item()
    return math.exp(common.over_ranks(loss) / len(following))


def perplexity_of_counts(known, following):
    """What is reached by the frequencies of the words in the training text alone."""
    counts = torch.bincount(known, minlength=WORDS) + 1.0
    return math.exp(-(counts / counts.sum()).log()[following].mean())


def train_epoch(model, optimizer, contexts, following, seed, most):
    """Trains on this rank's share of at most `most` batches; returns the touched rows, in percent.
    """
    touched = []
    for batch in common.batches(len(following), GLOBAL_BATCH, seed)[:most]:
        own = common.own_share(batch)
        optimizer.zero_grad()
        functional.cross_entropy(model(contexts[own]), following[own]).backward()
        optimizer.step()
        # Now the rows of all ranks, and still sparse.
        touched.append(model.words.weight.grad.coalesce().values().shape[0] / WORDS)
    return 100 * sum(touched) / len(touched)


def main():
    """Returns the exit status; see common.finish()."""
    options = common.parser_for(__doc__, epochs=4).parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    (contexts, following), test = load_text()
    model = Model()
    # The initial value keeps the first steps small.
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    common.say(f'perplexity by counting words: {perplexity_of_counts(following, test[1]):.1f}')
    for epoch in range(1 if options.short else options.epochs):
        touched = train_epoch(model, optimizer, contexts, following, options.seed + epoch,
                              60 if options.short else None)
        result = {'perplexity': perplexity(model, *test)}
        common.say(f'epoch {epoch + 1}: perplexity {result["perplexity"]:.1f}; a batch touched '
                   f'{touched:.0f} % of the rows of the table')
    return common.finish(options, model.state_dict(), result, TOLERANCE)


if __name__ == '__main__':
    sys.exit(main())
