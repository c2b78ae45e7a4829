"""Repeating the middle layers of a traced step gives the step of a deeper model."""

from collections import Counter

import pytest
from strategist_runtime.simulate.repeated_layers import MiddleLayers, repeat_layers
from strategist_runtime.simulate.timeline import StorageOrigin, Timeline

from strategist.contract.rank_observation import Moment

PERIOD = (11, 13)
"""Alternating sizes of layer parameters."""


class Step(Timeline):
    """A synthetic timeline with the form of a traced one."""

    def make(self, size, phase, module, *, stream=0, part="activations"):
        self.births.append(StorageOrigin(part=part, module=""))
        self._note(len(self.births) - 1, size, phase, module, stream)
        return len(self.births) - 1, size

    def drop(self, made, phase, module):
        self._note(made[0], -made[1], phase, module, 0)

    def _note(self, number, change, phase, module, stream):
        if stream:
            self.streams[len(self.events)] = stream
        self.events.append((number, change, Moment(phase=phase, module=module)))


def step(layers, micro_batches=2):
    """A step in which each layer is gathered by the previous one, saves activations, and leaves a gradient that the update
    frees.
    """
    found = Step()
    for layer in range(layers):
        found.make(PERIOD[layer % 2], "forward", "", part="parameters")
    found.make(5, "forward", "")
    found.begin = len(found.events)
    gradients = {}
    for _ in range(micro_batches):
        output, gathered, kept = found.make(7, "forward", "embedding"), {}, {}
        gathered[0] = found.make(100, "forward", "embedding", stream=1)
        for layer in range(layers):
            name = f"layers.{layer}"
            if layer + 1 < layers:
                gathered[layer + 1] = found.make(100 + (layer + 1) % 2, "forward", name, stream=1)
            kept[layer] = found.make(20 + layer % 2, "forward", name), output
            output = found.make(7, "forward", name)
            found.drop(gathered.pop(layer), "forward", name)
        wanted = found.make(8, "forward", "loss")
        found.drop(output, "backward", "loss")
        for layer in reversed(range(layers)):
            name = f"layers.{layer}"
            if layer not in gradients:
                gradients[layer] = found.make(PERIOD[layer % 2], "backward", name, stream=2)
            for made in kept.pop(layer):
                found.drop(made, "backward", name)
            found.drop(wanted, "backward", name)
            wanted = found.make(8, "backward", name)
        found.drop(wanted, "backward", "embedding")
    temporaries = [found.make(PERIOD[layer % 2], "optimizer", "") for layer in range(layers)]
    for made in (*temporaries, *gradients.values()):
        found.drop(made, "optimizer", "")
    return found


def normalised(timeline):
    """Events of the step except its update, in order, with storages numbered by first appearance; and the sizes before the step and
    in the update.
    """
    order = {}
    events = [
        (order.setdefault(number, len(order)), change, moment.phase, timeline.streams.get(index, 0))
        for index, (number, change, moment) in enumerate(timeline.events)
        if index >= timeline.begin and moment.phase != "optimizer"
    ]
    update = Counter(change for _, change, moment in timeline.events if moment.phase == "optimizer")
    return events, Counter(change for _, change, _ in timeline.events[: timeline.begin]), update


@pytest.mark.parametrize("times", [1, 2, 7])
def test_repeating_layers_equals_the_deeper_model(times):
    few, fewer, many = step(8), step(6), step(8 + 2 * times)
    found = repeat_layers(few, fewer, [MiddleLayers(layers=range(8), first=2, period=2)], times)
    assert normalised(found) == normalised(many)
    assert found.peak_memory_bytes == many.peak_memory_bytes
    assert sum(change for _, change, _ in found.events[found.begin :]) == sum(change for _, change, _ in many.events[many.begin :])


def test_layers_with_individual_events_are_not_repeated():
    few, fewer = step(8), step(6)
    at = next(index for index, event in enumerate(few.events) if event[2].module == "layers.2")
    few.events.insert(at + 1, (8, -1, few.events[at][2]))  # a storage from before the step
    assert repeat_layers(few, fewer, [MiddleLayers(layers=range(8), first=2, period=2)], 3) is few
