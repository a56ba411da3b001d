// Readers take names of files from a queue and give out the records in them, and the files
// themselves: TFRecordReaderV2, TextLineReaderV2, FixedLengthRecordReaderV2, WholeFileReaderV2,
// IdentityReaderV2; ReaderReadV2, ReaderReadUpToV2 and what tells how far a reader is. Besides
// ReadFile, WriteFile and MatchingFiles.
//
// A reader lives in the task of its node, by container and name, as its queue does, and reads one
// file at a time; of several steps that read, one waits for the other.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// compression_type: "", "GZIP" or "ZLIB".
Output TFRecordReader(const Scope& scope, const std::string& compression_type = "");
Output TextLineReader(const Scope& scope, int64_t skip_header_lines = 0);
Output WholeFileReader(const Scope& scope);
// The next record. The step waits until the queue has a file, and fails with OutOfRange when it is
// closed and empty.
struct ReaderReadResult {
  Output key, value;
};
ReaderReadResult ReaderRead(const Scope& scope, const Output& reader, const Output& queue);
Output ReadFile(const Scope& scope, const Output& filename);
// The names of the files that a pattern with *, ? and [...] stands for, sorted.
Output MatchingFiles(const Scope& scope, const Output& pattern);

}  // namespace monograph
