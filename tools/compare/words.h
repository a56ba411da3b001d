// Numbers and lists as the report's sentences have them.
#pragma once

#include <string>
#include <vector>

namespace monograph {

std::string Fixed(double value, int digits);
// Three digits that mean something: "1.25", "12.5", "125", "1,250".
std::string Digits(double value);
std::string Micros(double us);       // "12.5 ms"
std::string ByteSize(double bytes);  // "1.25 MiB"
std::string Percent(double share);   // "5.0 %", "45 %"

std::string Plural(int count, const std::string& word);     // "1 worker", "2 workers"
std::string Listed(const std::vector<std::string>& parts);  // "a, b and c"
// Inside a sentence: "in-graph", but a name of the user's own stays.
std::string InSentence(std::string title);
std::string Capitalized(std::string sentence);

}  // namespace monograph
