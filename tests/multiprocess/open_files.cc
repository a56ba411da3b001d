#include "tests/multiprocess/open_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace monograph {
namespace {

std::string ProcFolder(pid_t pid) { return "/proc/" + std::to_string(pid); }

// Where each descriptor leads, by its path in /proc.
std::map<std::string, std::string> Links(pid_t pid) {
  std::map<std::string, std::string> links;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(ProcFolder(pid) + "/fd", error)) {
    const std::filesystem::path target = std::filesystem::read_symlink(entry.path(), error);
    if (!error) links[entry.path().string()] = target.string();
  }
  return links;
}

std::vector<std::vector<std::string>> Rows(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the titles
  std::vector<std::vector<std::string>> rows;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

bool IsShared(const std::string& path) {
  return path.starts_with("/dev/shm/") || path.starts_with("/memfd:");
}

}  // namespace

std::string ToString(const std::vector<OpenSocket>& sockets) {
  std::string text;
  for (const OpenSocket& socket : sockets) {
    text += socket.table + (socket.listens ? " listens" : "") + " " +
            (socket.table == "unix" ? socket.name : std::to_string(socket.port)) + "\n";
  }
  return text;
}

std::vector<OpenSocket> SocketsOf(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& [path, target] : Links(pid)) {
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::vector<OpenSocket> sockets;
  for (const std::string table : {"tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6"}) {
    for (const auto& row : Rows(ProcFolder(pid) + "/net/" + table)) {
      if (row.size() < 10 || !inodes.contains(row[9])) continue;
      inodes.erase(row[9]);
      const int port = std::stoi(row[1].substr(row[1].find(':') + 1), nullptr, 16);
      sockets.push_back({.table = table, .listens = row[3] == "0A", .port = port, .name = row[1]});
    }
  }
  for (const auto& row : Rows(ProcFolder(pid) + "/net/unix")) {
    if (row.size() < 7 || !inodes.contains(row[6])) continue;
    inodes.erase(row[6]);
    const bool listens = (std::stoul(row[3], nullptr, 16) & 0x10000) != 0;
    sockets.push_back({.table = "unix", .listens = listens, .name = row.size() > 7 ? row[7] : ""});
  }
  for (const std::string& inode : inodes) sockets.push_back({.table = "other", .name = inode});
  return sockets;
}

std::string KillingPacket() {
  const uint64_t magic = 0xCAFEBABE12345678;
  std::string packet(reinterpret_cast<const char*>(&magic), sizeof magic);
  packet += '\x20';
  packet.append(4, '\0');
  return packet.append(64, 'A');
}

std::vector<SharedSegment> SegmentsOf(pid_t pid) {
  std::map<std::string, SharedSegment> segments;
  for (const auto& [path, target] : Links(pid)) {
    struct stat info {};
    if (!IsShared(target) || stat(path.c_str(), &info) != 0) continue;
    segments[target] = {target, info.st_mode & 07777, info.st_uid, info.st_nlink > 0};
  }
  std::ifstream maps(ProcFolder(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, mode, offset, device, inode, path;
    words >> range >> mode >> offset >> device >> inode >> std::ws;
    std::getline(words, path);
    if (path.starts_with("/SYSV")) {
      for (const auto& row : Rows("/proc/sysvipc/shm")) {
        if (row.size() > 7 && row[1] == inode)
          segments[path + inode] = {path, static_cast<unsigned>(std::stoul(row[2], nullptr, 8)),
                                    static_cast<uid_t>(std::stoul(row[7])), true};
      }
    } else if (IsShared(path) && !segments.contains(path)) {
      struct stat info {};
      if (stat((ProcFolder(pid) + "/map_files/" + range).c_str(), &info) == 0)
        segments[path] = {path, info.st_mode & 07777, info.st_uid, info.st_nlink > 0};
    }
  }
  std::vector<SharedSegment> result;
  for (auto& [name, segment] : segments) result.push_back(std::move(segment));
  return result;
}

}  // namespace monograph
