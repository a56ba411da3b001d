// MG_INDEPENDENT_LOOP before a loop: no iteration reads what another one writes, so that GCC need
// not check it before it makes a vector loop. Clang has no such word that is silent where it cannot
// follow; it checks when the loop runs.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
#define MG_INDEPENDENT_LOOP _Pragma("GCC ivdep")
#else
#define MG_INDEPENDENT_LOOP
#endif
