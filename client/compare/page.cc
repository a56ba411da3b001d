// The page: client/compare/page.html, which the build puts into kPageTemplate, with the figures in
// it.
#include "client/compare/page_template.h"
#include "client/compare/report.h"

namespace monograph {
namespace {

void Replace(std::string* text, std::string_view mark, std::string_view by) {
  text->replace(text->find(mark), mark.size(), by);
}

// Inside <pre>.
std::string EscapedText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// Inside <script>: no text in it may end it.
std::string EscapedJson(const std::string& json) {
  std::string out;
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string ReportPage(const CompareReport& report) {
  std::string page = kPageTemplate;
  Replace(&page, "<!--TABLE-->", EscapedText(ReportTable(report)));
  Replace(&page, "<!--DATA-->", EscapedJson(ReportJson(report)));
  return page;
}

}  // namespace monograph
