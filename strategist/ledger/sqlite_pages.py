"""Reads records from the pages of an SQLite file, without the B-trees above them (sqlite.org/fileformat2.html).

If an interior page is damaged or the file is truncated, leaf pages still hold records. The checksum of a record shows whether it is
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
    file_pages = [data[begin : begin + size].ljust(size, b"\0") for begin in range(0, len(data), size)]
    uncommitted: dict[int, bytes] = {}
    for begin in range(LOG_HEADER_BYTES, len(log) - FRAME_HEADER_BYTES - size + 1, FRAME_HEADER_BYTES + size):
        number, committed = struct.unpack(">II", log[begin : begin + 8])
        if log[begin + 8 : begin + 16] != log[16:24]:  # left over from before the log's last restart
            break
        uncommitted[number] = log[begin + FRAME_HEADER_BYTES : begin + FRAME_HEADER_BYTES + size]
        if committed:
            max_pages = len(file_pages) + len(uncommitted)  # a larger page number is damaged
            file_pages += [bytes(size)] * (
                max([0, *(page_number for page_number in uncommitted if page_number <= max_pages)]) - len(file_pages)
            )
            for page_number in set(uncommitted) & set(range(1, max_pages + 1)):
                file_pages[page_number - 1] = uncommitted[page_number]
            uncommitted = {}
    return file_pages


def records(file_pages: list[bytes]) -> Iterator[tuple[int, list[object]]]:
    """Row number and columns of each record, of any table; unreadable records are left out."""
    for index, page in enumerate(file_pages):
        header = FILE_HEADER_BYTES if index == 0 else 0
        if page[header] != LEAF_PAGE:
            continue
        cells = int.from_bytes(page[header + 3 : header + 5])
        begin = header + PAGE_HEADER_BYTES
        for offset in range(begin, min(begin + 2 * cells, len(page) - 1), 2):
            try:
                yield _record(file_pages, page, int.from_bytes(page[offset : offset + 2]))
            except (IndexError, ValueError, struct.error):
                continue


def _record(file_pages: list[bytes], page: bytes, offset: int) -> tuple[int, list[object]]:
    """The record of the cell at a position in a page."""
    length, offset = _varint(page, offset)
    number, offset = _varint(page, offset)
    local_bytes = _local_bytes(length, len(page))
    payload = page[offset : offset + local_bytes]
    if local_bytes < length:
        payload += _overflow(
            file_pages, int.from_bytes(page[offset + local_bytes : offset + local_bytes + 4]), length - local_bytes
        )
    return number, list(_columns(payload))


def _local_bytes(length: int, page_bytes: int) -> int:
    """Number of a record's bytes in the page itself; the rest is in a chain of overflow pages."""
    max_local, min_local = page_bytes - 35, (page_bytes - 12) * 32 // 255 - 23
    if length <= max_local:
        return length
    local_bytes = min_local + (length - min_local) % (page_bytes - 4)
    return local_bytes if local_bytes <= max_local else min_local


def _overflow(file_pages: list[bytes], next_page: int, length: int) -> bytes:
    parts = list[bytes]()
    while length > 0:
        if not 0 < next_page <= len(file_pages) or len(parts) > len(file_pages):
            raise ValueError("the chain of pages is broken")
        page = file_pages[next_page - 1]
        next_page = int.from_bytes(page[:4])
        parts.append(page[4 : 4 + length])
        length -= len(parts[-1])
    return b"".join(parts)


def _columns(payload: bytes) -> Iterator[object]:
    header_end, offset = _varint(payload, 0)
    value_offset = header_end
    while offset < header_end:
        code, offset = _varint(payload, offset)
        if code >= 12:
            length = (code - 12) // 2
            content = payload[value_offset : value_offset + length]
            yield content.decode() if code % 2 else content
        elif code == 7:
            length = 8
            yield struct.unpack(">d", payload[value_offset : value_offset + length])[0]
        elif code < len(INTEGER_BYTES):
            length = INTEGER_BYTES[code]
            yield int.from_bytes(payload[value_offset : value_offset + length], signed=True) if code else None
        else:
            length = 0
            yield code - 8
        value_offset += length


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """A variable-length integer of one to nine bytes, and the position after it."""
    value = 0
    for _ in range(8):
        value = value << 7 | data[offset] & 0x7F
        offset += 1
        if not data[offset - 1] & 0x80:
            return value, offset
    return value << 8 | data[offset], offset + 1
