// The page: tools/compare/page.html, which the build puts into kPageTemplate, with the figures in
// it.
#include "tools/compare/page_template.h"
#include "tools/compare/report.h"
#include "tools/compare/sentences.h"

namespace monograph {
namespace {

// Replaces every `mark` in the text.
void Replace(std::string* text, std::string_view mark, std::string_view by) {
  for (size_t at = 0; (at = text->find(mark, at)) != std::string::npos; at += by.size())
    text->replace(at, mark.size(), by);
}

// Escaped as text between tags.
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

// JSON inside <script>, in which no text may contain the closing tag.
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
  const ReportSentences sentences = SentencesOf(report, Cells(report));
  std::string page = kPageTemplate;
  Replace(&page, "<!--HEADLINE-->", EscapedText(sentences.headline));
  Replace(&page, "<!--CERTAINTY-->", EscapedText(sentences.certainty));
  Replace(&page, "<!--WEIGHTS-->", EscapedText(sentences.weights));
  Replace(&page, "<!--LOAD-->", EscapedText(sentences.load));
  Replace(&page, "<!--TABLE-->", EscapedText(ReportTable(report)));
  Replace(&page, "<!--DATA-->", EscapedJson(ReportJson(report)));
  return page;
}

}  // namespace monograph
