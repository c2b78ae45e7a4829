def scramble(value):
    """64 bits made of 64 bits, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def shuffle(index, count, epoch):
    """The sample number at ``index`` of an epoch: a permutation of ``range(count)`` by a Feistel network, which needs no table."""
    half = 2 ** max(1, ((count - 1).bit_length() + 1) // 2)
    key, (left, right) = scramble(scramble(SEED) ^ epoch), divmod(index, half)
    for round_index in range(6):
        left, right = right, left ^ scramble(key + (round_index << 32) + right) % half
    index = left * half + right
    return index if index < count else shuffle(index, count, epoch)
