// Lists of element types that many ops allow, as OpDef::Attr takes them.
#pragma once

#define MG_OP_FLOAT_TYPES "{bfloat16, half, float, double}"
#define MG_OP_COMPLEX_FLOAT_TYPES "{bfloat16, half, float, double, complex64, complex128}"
#define MG_OP_REAL_TYPES \
  "{float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"
#define MG_OP_NUMBER_TYPES                                                                      \
  "{float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, " \
  "half, uint32, uint64}"
#define MG_OP_INDEX_TYPES "{int32, int64}"
