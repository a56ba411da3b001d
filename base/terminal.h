// What a stream of this process leads to: a terminal gets colour and lines that rewrite themselves,
// a pipe or a file gets plain text.
#pragma once

namespace monograph {

// `descriptor` is a terminal that understands escape sequences (TERM is not "dumb").
bool IsTerminal(int descriptor);
// The same, and the user does not forbid colour by a NO_COLOR that is not empty (no-color.org).
bool UsesColour(int descriptor);
// Columns of the terminal; `otherwise` if `descriptor` is no terminal or does not know
// its width.
int TerminalColumns(int descriptor, int otherwise);

}  // namespace monograph
