// Reads the include lines of the source and keeps the picture of the layers true:
//
//   base <- graph, transport (strangers to each other) <- executor <- ops <- client <- train <-
//   tools <- c_api, examples
//
// A folder includes itself and what stands left of it. A header in a sub-folder is private to its
// top folder, except a room's own header, ops/<op>/<op>.h or executor/worker/worker.h, and the
// other doors that IsDoor lists. A file named *_main.cc is a program and may include anything.
// Locks are those of base/mutex.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace monograph {
namespace {

namespace fs = std::filesystem;

// What each top folder may include.
const std::map<std::string, std::set<std::string>>& Allowed() {
  static const std::map<std::string, std::set<std::string>> allowed = {
      {"base", {"base"}},
      {"graph", {"base", "graph"}},
      {"transport", {"base", "transport"}},
      {"executor", {"base", "graph", "transport", "executor"}},
      {"ops", {"base", "graph", "transport", "executor", "ops"}},
      {"client", {"base", "graph", "transport", "executor", "ops", "client"}},
      {"train", {"base", "graph", "transport", "executor", "ops", "client", "train"}},
      {"tools", {"base", "graph", "transport", "executor", "ops", "client", "train", "tools"}},
      {"c_api",
       {"base", "graph", "transport", "executor", "ops", "client", "train", "tools", "c_api"}},
      {"examples",
       {"base", "graph", "transport", "executor", "ops", "client", "train", "tools", "examples"}},
  };
  return allowed;
}

// Headers of sub-folders that are interfaces, besides the one that is named like its folder: the
// control plane, which upper layers talk to by name; what kernels for GPUs see of CUDA; the files
// of checkpoints and the messages of summaries; and of the executor's rooms what clients and
// kernels use.
bool IsDoor(const std::string& path) {
  static const std::set<std::string> doors = {
      "executor/collective/collective_kernel.h",
      "executor/gpu/plugin.h",
      "executor/gpu/plugin_interface.h",
      "executor/step/kernel_runner.h",
      "executor/step/unfinished.h",
      "executor/worker/server.h",
      "executor/worker/step_ids.h",
      "executor/worker/step_message.h",
      "executor/worker/task_status.h",
      "ops/summary/histogram.h",
  };
  return path.starts_with("transport/control/") || path.starts_with("executor/gpu/cuda/") ||
         path.starts_with("ops/checkpoint_files/") || doors.count(path) > 0;
}

struct Include {
  std::string from, to;
  int line;
};

std::vector<std::string> SourcesOf(const std::string& folder) {
  std::vector<std::string> files;
  const fs::path root = MG_SOURCE_ROOT;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string end = entry.path().extension();
    if (end == ".h" || end == ".cc" || end == ".cu")
      files.push_back(fs::relative(entry.path(), root).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TopOf(const std::string& path) { return path.substr(0, path.find('/')); }
bool IsProgram(const std::string& path) { return path.ends_with("_main.cc"); }

// What is wrong with a line `#include "to"` in the file `from`; empty: nothing.
std::string Fault(const std::string& from, const std::string& to) {
  if (IsProgram(from)) return "";
  const std::string top = TopOf(from), target = TopOf(to);
  const std::string top_header = "monograph/" + top + ".h";  // of c_api
  if (to.rfind("monograph/", 0) == 0)
    return top == "examples" || to == top_header ? "" : "the installed header belongs to users";
  if (target == to) return "not rooted at the project";
  if (Allowed().count(target) == 0) return "no layer";
  if (Allowed().at(top).count(target) == 0) return top + " does not stand right of " + target;
  const size_t slashes = static_cast<size_t>(std::count(to.begin(), to.end(), '/'));
  if (slashes < 2 || target == top || IsDoor(to) || to.ends_with(".pb.h")) return "";
  const fs::path path(to);
  if (slashes == 2 && path.stem() == path.parent_path().filename()) return "";
  return "a header in a sub-folder is private to " + target;
}

std::vector<Include> IncludesOf(const std::string& file) {
  static const std::regex line_of_include("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  std::vector<Include> includes;
  std::ifstream in(fs::path(MG_SOURCE_ROOT) / file);
  std::smatch match;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (std::regex_search(line, match, line_of_include))
      includes.push_back({file, match[1], number});
  }
  return includes;
}

TEST(Layers, EveryFolderIncludesItselfAndWhatStandsLeftOfItOnly) {
  size_t files = 0, includes = 0;
  for (const auto& [folder, allowed] : Allowed()) {
    for (const std::string& file : SourcesOf(folder)) {
      // Projects of their own, which use the installed library.
      if (file.rfind("examples/consumer/", 0) == 0 || file.rfind("examples/custom_op/", 0) == 0)
        continue;
      ++files;
      for (const Include& include : IncludesOf(file)) {
        ++includes;
        const std::string fault = Fault(include.from, include.to);
        EXPECT_EQ(fault, "") << include.from << ":" << include.line << ": #include \"" << include.to
                             << "\"";
      }
    }
  }
  EXPECT_GT(files, 200u) << "the source was not found";
  EXPECT_GT(includes, 500u);
}

// Clang checks the use of locks that say what they guard (base/mutex.h); it knows nothing of the
// standard library's.
TEST(Layers, EveryLockIsOneWhoseUseClangChecks) {
  static const std::regex unchecked(
      "std::(recursive_|shared_|timed_)*mutex|std::condition_variable|std::(lock_guard|unique_lock|"
      "shared_lock|scoped_lock)\\b");
  EXPECT_TRUE(std::regex_search("  std::mutex mutex_;", unchecked));
  EXPECT_FALSE(std::regex_search("  MutexLock lock(mutex_, std::adopt_lock);", unchecked));
  for (const auto& [folder, allowed] : Allowed()) {
    for (const std::string& file : SourcesOf(folder)) {
      if (file == "base/mutex.h") continue;
      std::ifstream in(fs::path(MG_SOURCE_ROOT) / file);
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        EXPECT_FALSE(std::regex_search(line, unchecked)) << file << ":" << number << ": " << line;
      }
    }
  }
}

// base/input_file.h checks what a file is, its size, and that nothing waits for it;
// base/json_value.h how deep a text of JSON goes. Files of the system are read otherwise, and
// folders.
TEST(Layers, FilesThatAUserNamesAreOpenedInOnePlace) {
  static const std::regex reads("ifstream|\\bfopen\\(|gzopen\\(|open\\(.*O_RDONLY|Json::parse\\(");
  static const std::regex others_of_a_kind("\"/(proc|sys|etc)/|O_DIRECTORY");
  // The two helpers, and the memory that the system says this process may have.
  static const std::set<std::string> others = {"base/input_file.cc", "base/json_value.cc",
                                               "base/system_memory.cc"};
  const auto is_wrong = [](const std::string& line) {
    return std::regex_search(line, reads) && !std::regex_search(line, others_of_a_kind);
  };
  EXPECT_TRUE(is_wrong("  std::ifstream file(path);"));
  EXPECT_TRUE(is_wrong("  open(path.c_str(), O_RDONLY | O_CLOEXEC)"));
  EXPECT_FALSE(is_wrong("  std::ifstream file(\"/proc/self/stat\");"));
  for (const auto& [folder, allowed] : Allowed()) {
    if (folder == "bench") continue;
    for (const std::string& file : SourcesOf(folder)) {
      if (others.contains(file)) continue;
      std::ifstream in(fs::path(MG_SOURCE_ROOT) / file);
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        EXPECT_FALSE(is_wrong(line)) << file << ":" << number << ": " << line;
      }
    }
  }
}

// What a library or the kernel keeps in this process's memory is changed by calling it only.
TEST(Layers, NoSourceOpensTheMemoryOfAProcess) {
  static const std::regex opens(
      "/proc/.*\\bmem\\b|/self/mem\\b|\"/?mem\"|process_vm_(read|write)v");
  EXPECT_TRUE(std::regex_search("open(\"/proc/self/mem\", O_RDWR)", opens));
  EXPECT_TRUE(std::regex_search("  \"/proc/\" + std::to_string(getpid()) + \"/mem\"", opens));
  EXPECT_FALSE(std::regex_search("  std::ifstream file(\"/proc/self/statm\");", opens));
  EXPECT_FALSE(std::regex_search("  std::ifstream file(\"/proc/meminfo\");", opens));
  for (const auto& [folder, allowed] : Allowed()) {
    for (const std::string& file : SourcesOf(folder)) {
      std::ifstream in(fs::path(MG_SOURCE_ROOT) / file);
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        ++number;
        EXPECT_FALSE(std::regex_search(line, opens)) << file << ":" << number << ": " << line;
      }
    }
  }
}

TEST(Layers, EveryFileWithALockStandsInTheTableOfLocks) {
  static const std::regex lock(
      "^\\s*(mutable |static "
      ")*(Mutex|SharedMutex|SpinLock|WorkerLock|std::unique_ptr<Mutex\\[\\]>) "
      "\\w+;");
  std::ifstream in(fs::path(MG_SOURCE_ROOT) / "docs/threading.md");
  const std::string table((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  size_t files = 0;
  for (const auto& [folder, allowed] : Allowed()) {
    for (const std::string& file : SourcesOf(folder)) {
      std::ifstream source(fs::path(MG_SOURCE_ROOT) / file);
      bool has = false;
      for (std::string line; std::getline(source, line);) has |= std::regex_search(line, lock);
      if (!has) continue;
      ++files;
      EXPECT_NE(table.find("`" + file + "`"), std::string::npos)
          << "docs/threading.md lacks the lock of " << file;
    }
  }
  EXPECT_GT(files, 40u);
}

TEST(Layers, TheReaderKnowsGoodLinesFromBadOnes) {
  EXPECT_EQ(Fault("graph/place.cc", "base/status.h"), "");
  EXPECT_EQ(Fault("client/session.cc", "ops/matmul/matmul.h"), "");
  EXPECT_EQ(Fault("executor/worker/server.cc", "transport/control/server.h"), "");
  EXPECT_EQ(Fault("ops/matmul/matmul_cpu.cc", "executor/kernel.h"), "");
  EXPECT_EQ(Fault("tools/executor_main.cc", "transport/ucx/ucx_transport.h"), "");
  EXPECT_NE(Fault("base/status.cc", "graph/graph.h"), "");
  EXPECT_NE(Fault("graph/place.cc", "transport/transport.h"), "");
  EXPECT_NE(Fault("transport/transport.cc", "graph/graph.h"), "");
  EXPECT_NE(Fault("executor/worker/worker.cc", "ops/register.h"), "");
  EXPECT_NE(Fault("executor/worker/worker.cc", "transport/ucx/ucx_transport.h"), "");
  EXPECT_EQ(Fault("client/session.cc", "executor/worker/server.h"), "");
  EXPECT_NE(Fault("client/session.cc", "ops/elementwise/gradients.h"), "");
  EXPECT_NE(Fault("client/session.cc", "executor/worker/impl.h"), "");
  EXPECT_NE(Fault("client/session.cc", "train/saver.h"), "");
  EXPECT_NE(Fault("client/session.cc", "session.h"), "");
}

}  // namespace
}  // namespace monograph
