#include "runtime/storage/posix/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/core/status.h"
#include "runtime/storage/posix/errors.h"

namespace shunt::storage {
namespace {

constexpr uint32_t kBlockBytesMax = 1 << 20;  // more than that no file system asks for

uint32_t PageBytes() {
  static const auto bytes = static_cast<uint32_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string KernelPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// The last name of where the descriptor points, for errors only: others may see them, if the file
// is published, and need not know where it lies.
std::string LabelOf(int fd) {
  char target[512];
  const ssize_t bytes = ::readlink(KernelPath(fd).c_str(), target, sizeof(target));
  if (bytes <= 0) return absl::StrCat("descriptor ", fd);
  absl::string_view name(target, static_cast<size_t>(bytes));
  if (const size_t slash = name.rfind('/'); slash != absl::string_view::npos) {
    name.remove_prefix(slash + 1);
  }
  return absl::StrCat("descriptor of '", absl::CHexEscape(name), "'");
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "not a file of the file system";
}

bool PowerOfTwo(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

absl::StatusOr<File> AdoptFile(UniqueFd fd, bool writable, bool direct, std::string label) {
  struct ::stat info;
  if (::fstat(fd.get(), &info) != 0) return FileError(errno, label);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, " is ", KindOf(info.st_mode), ", expected a regular file"));
  }
  File file{.fd = std::move(fd),
            .direct = {},
            .blocks = {},
            .writable = writable,
            .slow = true,
            .label = std::move(label),
            .bytes = static_cast<uint64_t>(info.st_size)};
  file.slow = MayWaitForOthers(file.fd.get());
  if (direct) AddDirect(&file);
  return file;
}

absl::StatusOr<File> OpenDescriptor(UniqueFd fd, Access access, bool direct) {
  const std::string label = LabelOf(fd.get());
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0) return FileError(errno, label);
  const int mode = flags & O_ACCMODE;
  const bool readable = (flags & O_PATH) == 0 && mode != O_WRONLY;
  const bool writable = (flags & O_PATH) == 0 && mode != O_RDONLY;
  if (access == Access::kRead && !readable) {
    return absl::PermissionDeniedError(
        absl::StrCat(label, " is not open for reading, expected O_RDONLY or O_RDWR"));
  }
  if (access == Access::kReadWrite) {
    if (!writable) {
      return absl::PermissionDeniedError(
          absl::StrCat(label, " is not open for writing, expected O_RDWR or O_WRONLY"));
    }
    // Linux appends then, wherever the write says that it goes.
    if ((flags & O_APPEND) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, " is open with O_APPEND, expected a descriptor without it"));
    }
  }
  return AdoptFile(std::move(fd), access == Access::kReadWrite, direct, label);
}

void AddDirect(File* file) {
  // Opening it anew gives flags of its own. With the access that it has already, so that nobody
  // gains any; who may not open it a second time has it buffered. Without O_NONBLOCK it would wait
  // here for whoever holds a lease on the file.
  const int mode = ::fcntl(file->fd.get(), F_GETFL) & O_ACCMODE;
  UniqueFd direct(
      ::open(KernelPath(file->fd.get()).c_str(), mode | O_DIRECT | O_NONBLOCK | O_CLOEXEC));
  if (!direct.valid()) return;
  ClearNonBlocking(direct.get());
  struct ::statx info;
  Blocks blocks{.direct = true, .bytes = PageBytes()};
  if (::statx(direct.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0) {
    if ((info.stx_mask & STATX_DIOALIGN) != 0) {
      if (info.stx_dio_offset_align == 0) return;  // says that it has none
      blocks.bytes = std::max(PageBytes(), info.stx_dio_offset_align);
      blocks.memory_align = std::max<uint32_t>(1, info.stx_dio_mem_align);
    }
    blocks.bytes = std::max(blocks.bytes, std::min(info.stx_blksize, kBlockBytesMax));
  }
  if (!PowerOfTwo(blocks.bytes) || !PowerOfTwo(blocks.memory_align)) return;
  if (blocks.bytes > kBlockBytesMax) return;
  file->direct = std::move(direct);
  file->blocks = blocks;
}

bool MayWaitForOthers(int fd) {
  constexpr uint32_t kXfs = 0x58465342, kZfs = 0x2fc12fc1;  // not in linux/magic.h
  struct ::statfs info;
  if (::fstatfs(fd, &info) != 0) return true;
  switch (static_cast<uint32_t>(info.f_type)) {
    case BTRFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case HUGETLBFS_MAGIC:
    case RAMFS_MAGIC:
    case TMPFS_MAGIC:
    case kXfs:
    case kZfs:
      return false;
    default:
      return true;
  }
}

void ClearNonBlocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

uint64_t SizeNow(const File& file) {
  struct ::statx info;
  const int how = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return ::statx(file.fd.get(), "", how, STATX_SIZE, &info) == 0 ? info.stx_size : file.bytes;
}

}  // namespace shunt::storage
