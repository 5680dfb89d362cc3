"""Field numbers of HLO's protobuf messages, and the names of its element types."""

from __future__ import annotations

# HloProto, HloModuleProto, HloComputationProto.
MODULE, BUFFERS = 1, 3
MODULE_NAME, COMPUTATIONS, ENTRY, SCHEDULE, STACK_FRAMES = 1, 3, 6, 7, 17  # definition
COMPUTATION_NAME, INSTRUCTIONS, COMPUTATION_ID, ROOT = 1, 2, 5, 6  # definition

# HloInstructionProto.
NAME, OPCODE, SHAPE, METADATA, PARAMETER, ELEMENT = 1, 2, 3, 7, 9, 13
WINDOW, CONVOLUTION, TARGET, DOT = 15, 16, 28, 30  # definition
ID, OPERANDS, CALLED, CONFIG, PRECISION = 35, 36, 38, 43, 51  # definition
# Of its metadata.
OP_NAME, SOURCE_FILE, SOURCE_LINE, FRAME = 2, 3, 4, 15

# ShapeProto, BufferAllocationProto.
ELEMENT_TYPE, DIMENSIONS, LEAVES = 2, 3, 4
ALLOCATIONS = 3  # definition
SIZE, THREAD_LOCAL, IS_ARGUMENT, LIVE_OUT, CONSTANT = 2, 3, 5, 7, 12  # definition

TUPLE = 13  # definition
DTYPES = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    15: "complex64",
    16: "bfloat16",
    18: "complex128",
    19: "float8",
    20: "float8",
    21: "int8",  # four bits: at most a byte
    22: "uint8",
    23: "float8",
    24: "float8",
    25: "float8",
    28: "float8",
    29: "float8",
    33: "float8",
}
