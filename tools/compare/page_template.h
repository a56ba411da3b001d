// The text of page.html.
#pragma once

namespace monograph {

extern const char kPageTemplate[];

}  // namespace monograph
