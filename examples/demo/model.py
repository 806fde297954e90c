"""A two-layer perceptron whose gradient comes bucket by bucket, last layer first.

All weights lie in one flat array and all gradients in another, so that a bucket is a contiguous piece:

    flat:     [ second layer | rows 0..127 of the first | rows 128..255 | ... ]
    buckets:        0                   1                     2
"""

import numpy as np


class Perceptron:
    def __init__(self, inputs, hidden, classes, blocks, allocate):
        """`allocate(count)` gives zeroed float32 arrays: here is where shared memory comes in."""
        self.inputs, self.hidden, self.classes = inputs, hidden, classes
        second = classes * (hidden + 1)  # the last column of each layer is its bias
        first = hidden * (inputs + 1)
        self.weights = allocate(second + first)
        self.gradient = allocate(second + first)
        rows = [(hidden * i // blocks, hidden * (i + 1) // blocks) for i in range(blocks)]
        self._rows = rows
        self.buckets = [slice(0, second)] + [
            slice(second + begin * (inputs + 1), second + end * (inputs + 1)) for begin, end in rows
        ]
        self._w2, self._w1 = self._layers(self.weights, second)
        self._g2, self._g1 = self._layers(self.gradient, second)

    def _layers(self, flat, second):
        return (
            flat[:second].reshape(self.classes, self.hidden + 1),
            flat[second:].reshape(self.hidden, self.inputs + 1),
        )

    def initialize(self, seed):
        random = np.random.default_rng(seed)
        self._w1[:, :-1] = random.normal(0, np.sqrt(2 / self.inputs), (self.hidden, self.inputs))
        self._w2[:, :-1] = random.normal(0, np.sqrt(1 / self.hidden), (self.classes, self.hidden))

    def _forward(self, x):
        hidden = np.maximum(x @ self._w1[:, :-1].T + self._w1[:, -1], 0)
        logits = hidden @ self._w2[:, :-1].T + self._w2[:, -1]
        logits -= logits.max(axis=1, keepdims=True)
        probability = np.exp(logits)
        probability /= probability.sum(axis=1, keepdims=True)
        return hidden, probability

    def backward(self, x, labels):
        """Computes the gradient of the mean loss over the batch; yields each bucket's number once its part of
        the gradient is ready. The loss comes last, as the generator's return value."""
        hidden, probability = self._forward(x)
        at_label = probability[np.arange(len(x)), labels]
        delta = probability
        delta[np.arange(len(x)), labels] -= 1
        delta /= len(x)
        np.matmul(delta.T, hidden, out=self._g2[:, :-1])
        self._g2[:, -1] = delta.sum(axis=0)
        yield 0
        delta_hidden = delta @ self._w2[:, :-1]
        delta_hidden *= hidden > 0
        for bucket, (begin, end) in enumerate(self._rows, start=1):
            block = delta_hidden[:, begin:end]
            self._g1[begin:end, :-1] = block.T @ x
            self._g1[begin:end, -1] = block.sum(axis=0)
            yield bucket
        return -np.log(np.maximum(at_label, 1e-30)).mean()

    def accuracy(self, x, labels):
        return float((self._forward(x)[1].argmax(axis=1) == labels).mean())
