"""Random permutation of many samples without a table: the sample at any position of any epoch is computed directly."""

ROUNDS = 6
_WORD = 2**64 - 1


def shuffled(position: int, count: int, *key: int) -> int:
    """The image of ``position`` under a pseudorandom permutation of 0 to ``count - 1`` that is given by the key.

    A Feistel network over the next even power of two, repeated until the result is below ``count`` (cycle walking: Black and
    Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    seed = mixed(*key)
    while True:
        left, right = position >> half, position & mask
        for round_index in range(ROUNDS):
            left, right = right, left ^ (_mix(seed + round_index * (1 << 32) + right) & mask)
        position = left << half | right
        if position < count:
            return position


def mixed(*numbers: int) -> int:
    """A 64-bit hash of integers, dependent on their order."""
    state = 0
    for number in numbers:
        state = _mix(state ^ (number & _WORD))
    return state


def _mix(value: int) -> int:
    """One step of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _WORD
    return value ^ value >> 31
