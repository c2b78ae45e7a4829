# The order of samples is that of ``strategist run``: it depends on SEED and the epoch, not on the number of ranks.


def mix(*numbers):
    """64 random bits made of whole numbers, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    state, word = 0, 2**64 - 1
    for number in numbers:
        state = scramble(state ^ (number & word))
    return state


def scramble(value):
    word = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & word
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & word
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & word
    return value ^ value >> 31


def shuffle(place, count, epoch):
    """The sample at a place of an epoch: a permutation of ``range(count)`` by a Feistel network, which needs no table."""
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    key = mix(SEED, epoch)
    while True:
        left, right = place >> half, place & ((1 << half) - 1)
        for turn in range(6):
            left, right = right, left ^ (scramble(key + (turn << 32) + right) & ((1 << half) - 1))
        place = left << half | right
        if place < count:
            return place
