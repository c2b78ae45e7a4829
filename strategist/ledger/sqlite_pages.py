"""Records of an SQLite file read off its pages, without the trees above them: where a page that leads to others is damaged, or the
file is cut off, those are still there (sqlite.org/fileformat2.html). Whether a record is as it was written its seal says."""

import struct
from collections.abc import Iterator

LEAF = 0x0D
"""A page of a table's rows begins with this."""

FILE_HEADER_BYTES, PAGE_HEADER_BYTES = 100, 8
LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
USUAL_PAGE_BYTES = 4096

INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
"""Of an integer, by the code that a record's header has for it; 7 is a floating-point number, 8 and 9 are 0 and 1."""


def pages(data: bytes, log: bytes) -> list[bytes]:
    """The pages of a file, the first one first, as the commits in its write-ahead log left them."""
    size = int.from_bytes(data[16:18])
    size = size if size in (512, 1024, 2048, 4096, 8192, 16384, 32768) else USUAL_PAGE_BYTES
    found = [data[begin : begin + size].ljust(size, b"\0") for begin in range(0, len(data), size)]
    waiting: dict[int, bytes] = {}
    for begin in range(LOG_HEADER_BYTES, len(log) - FRAME_HEADER_BYTES - size + 1, FRAME_HEADER_BYTES + size):
        number, committed = struct.unpack(">II", log[begin : begin + 8])
        if log[begin + 8 : begin + 16] != log[16:24]:  # of an earlier round of the log
            break
        waiting[number] = log[begin + FRAME_HEADER_BYTES : begin + FRAME_HEADER_BYTES + size]
        if committed:
            most = len(found) + len(waiting)  # a number beyond is damaged
            found += [bytes(size)] * (max([0, *(each for each in waiting if each <= most)]) - len(found))
            for each in set(waiting) & set(range(1, most + 1)):
                found[each - 1] = waiting[each]
            waiting = {}
    return found


def records(found: list[bytes]) -> Iterator[tuple[int, list[object]]]:
    """The row number and the columns of each record, of whatever table; what cannot be read is left out."""
    for place, page in enumerate(found):
        head = FILE_HEADER_BYTES if place == 0 else 0
        if page[head] != LEAF:
            continue
        cells = int.from_bytes(page[head + 3 : head + 5])
        begin = head + PAGE_HEADER_BYTES
        for at in range(begin, min(begin + 2 * cells, len(page) - 1), 2):
            try:
                yield _record(found, page, int.from_bytes(page[at : at + 2]))
            except (IndexError, ValueError, struct.error):
                continue


def _record(found: list[bytes], page: bytes, at: int) -> tuple[int, list[object]]:
    """The record of the cell at a place in a page."""
    length, at = _number(page, at)
    number, at = _number(page, at)
    here = _kept_here(length, len(page))
    payload = page[at : at + here]
    if here < length:
        payload += _rest(found, int.from_bytes(page[at + here : at + here + 4]), length - here)
    return number, list(_columns(payload))


def _kept_here(length: int, page_bytes: int) -> int:
    """How much of a record lies in the page itself; the rest is in a chain of others."""
    most, least = page_bytes - 35, (page_bytes - 12) * 32 // 255 - 23
    if length <= most:
        return length
    here = least + (length - least) % (page_bytes - 4)
    return here if here <= most else least


def _rest(found: list[bytes], following: int, length: int) -> bytes:
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
    end, at = _number(payload, 0)
    body = end
    while at < end:
        code, at = _number(payload, at)
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


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place behind it."""
    value = 0
    for _ in range(8):
        value = value << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    return value << 8 | data[at], at + 1
