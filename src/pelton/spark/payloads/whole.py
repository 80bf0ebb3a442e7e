"""Many JSON payloads at once, by Arrow's reader: ten times faster than one by one.

It takes a block only if every payload is an object that fits the schema as it is: no unknown field, no
number in a text, nothing twice. Otherwise the caller reads them one by one. Each payload is put into an
object with its number, so that a payload which is not one JSON value cannot pass as two.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types


def reads(kind: pa.DataType) -> bool:
    """Whether Arrow reads values of this type as :mod:`pelton.spark.payloads.conversion` does."""
    if types.is_struct(kind):
        return kind.num_fields > 0 and all(reads(each.type) for each in kind.fields)
    if types.is_list(kind):
        return reads(kind.value_type)
    return kind in (pa.int64(), pa.float64(), pa.bool_(), pa.string())


def read(payloads: pa.Array, kind: pa.StructType) -> pa.StructArray | None:
    """The payloads (binary) as structs; None if they must be read one by one."""
    if not len(payloads) or payloads.null_count:
        return None
    try:
        pc.cast(payloads, pa.string())  # Arrow's reader does not check UTF-8
        numbers = pa.array(np.arange(len(payloads))).cast(pa.string()).cast(pa.binary())
        text = pc.binary_join_element_wise(b'{"i":', numbers, b',"v":', payloads, b"}\n", b"")
        data = pa.concat_arrays([text]).buffers()[2]
        found = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([("i", pa.int64()), ("v", kind)]),
                newlines_in_values=True,
                unexpected_field_behavior="error",
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if not np.array_equal(found["i"].to_numpy(), np.arange(len(payloads))):
        return None
    value = found["v"].combine_chunks()
    return None if value.null_count or not _finite(value) else value


def _finite(array: pa.Array) -> bool:
    """Whether no number is NaN or Infinity, which JSON does not have and Arrow's reader takes."""
    if types.is_struct(array.type):
        return all(_finite(array.field(number)) for number in range(array.type.num_fields))
    if types.is_list(array.type):
        return _finite(array.flatten())
    if types.is_floating(array.type):
        return pc.all(pc.is_finite(array)).as_py() is not False
    return True
