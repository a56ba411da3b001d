// MG_INDEPENDENT_LOOP before a loop: no iteration reads what another one writes, so that GCC
// vectorises the loop without a check for overlap. Clang's pragma warns where it cannot vectorise,
// so Clang gets none and checks at run time.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#define MG_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#else
#define MG_INDEPENDENT_LOOP
#endif
