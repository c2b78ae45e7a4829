"""Reads records from the pages of an SQLite file, without the B-trees above them (sqlite.org/fileformat2.html).

If an interior page is damaged or the file is truncated, leaf pages still hold records. A record's seal shows whether it is
unchanged.
"""

import struct
from collections.abc import Iterator

LEAF_PAGE = 0x0D
"""First byte of a leaf page of a table's B-tree."""

FILE_HEADER_BYTES, PAGE_HEADER_BYTES = 100, 8
LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
DEFAULT_PAGE_BYTES = 4096

INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
"""Size of an integer by its code in a record's header (0: NULL). Code 7 is a float, 8 and 9 are the constants 0 and 1."""


def pages(data: bytes, log: bytes) -> list[bytes]:
    """The pages of a file in order, after the commits in its write-ahead log."""
    size = int.from_bytes(data[16:18])
    size = size if size in (512, 1024, 2048, 4096, 8192, 16384, 32768) else DEFAULT_PAGE_BYTES
    found = [data[begin : begin + size].ljust(size, b"\0") for begin in range(0, len(data), size)]
    waiting: dict[int, bytes] = {}
    for begin in range(LOG_HEADER_BYTES, len(log) - FRAME_HEADER_BYTES - size + 1, FRAME_HEADER_BYTES + size):
        number, committed = struct.unpack(">II", log[begin : begin + 8])
        if log[begin + 8 : begin + 16] != log[16:24]:  # left over from before the log's last restart
            break
        waiting[number] = log[begin + FRAME_HEADER_BYTES : begin + FRAME_HEADER_BYTES + size]
        if committed:
            most = len(found) + len(waiting)  # a larger page number is damaged
            found += [bytes(size)] * (max([0, *(each for each in waiting if each <= most)]) - len(found))
            for each in set(waiting) & set(range(1, most + 1)):
                found[each - 1] = waiting[each]
            waiting = {}
    return found


def records(found: list[bytes]) -> Iterator[tuple[int, list[object]]]:
    """Row number and columns of each record, of any table; unreadable records are left out."""
    for place, page in enumerate(found):
        head = FILE_HEADER_BYTES if place == 0 else 0
        if page[head] != LEAF_PAGE:
            continue
        cells = int.from_bytes(page[head + 3 : head + 5])
        begin = head + PAGE_HEADER_BYTES
        for at in range(begin, min(begin + 2 * cells, len(page) - 1), 2):
            try:
                yield _record(found, page, int.from_bytes(page[at : at + 2]))
            except (IndexError, ValueError, struct.error):
                continue


def _record(found: list[bytes], page: bytes, at: int) -> tuple[int, list[object]]:
    """The record of the cell at a position in a page."""
    length, at = _varint(page, at)
    number, at = _varint(page, at)
    here = _local_bytes(length, len(page))
    payload = page[at : at + here]
    if here < length:
        payload += _overflow(found, int.from_bytes(page[at + here : at + here + 4]), length - here)
    return number, list(_columns(payload))


def _local_bytes(length: int, page_bytes: int) -> int:
    """Number of a record's bytes in the page itself; the rest is in a chain of overflow pages."""
    most, least = page_bytes - 35, (page_bytes - 12) * 32 // 255 - 23
    if length <= most:
        return length
    here = least + (length - least) % (page_bytes - 4)
    return here if here <= most else least


def _overflow(found: list[bytes], following: int, length: int) -> bytes:
    parts = list[bytes]()
    while length > 0:
        if not 0 < following <= len(found) or len(parts) > len(found):
            raise ValueError("the chain of pages is broken")
        page = found[following - 1]
        following = int.from_bytes(page[:4])
        parts.append(page[4 : 4 + length])
        length -= len(parts[-1])
    return b"".join(parts)


def _columns(payload: bytes) -> Iterator[object]:
    end, at = _varint(payload, 0)
    body = end
    while at < end:
        code, at = _varint(payload, at)
        if code >= 12:
            length = (code - 12) // 2
            raw = payload[body : body + length]
            yield raw.decode() if code % 2 else raw
        elif code == 7:
            length = 8
            yield struct.unpack(">d", payload[body : body + length])[0]
        elif code < len(INTEGER_BYTES):
            length = INTEGER_BYTES[code]
            yield int.from_bytes(payload[body : body + length], signed=True) if code else None
        else:
            length = 0
            yield code - 8
        body += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer of one to nine bytes, and the position after it."""
    value = 0
    for _ in range(8):
        value = value << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    return value << 8 | data[at], at + 1
