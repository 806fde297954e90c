// A file system of one file, "a", whose server (a process, over FUSE) falls silent when a test
// wants it to.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/core/check.h"
#include "runtime/core/fd.h"

namespace shunt::storage::testing {

class SilentFiles {
 public:
  static constexpr size_t kBytes = 8192;

  // Call it in a child with mounts of its own (WithOwnMounts): the server ends with it, or
  // after half a minute.
  explicit SilentFiles(const std::string& path) : path_(path) {
    void* const shared =
        ::mmap(nullptr, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SHUNT_CHECK(shared != MAP_FAILED);
    turn_ = static_cast<sem_t*>(shared);
    SHUNT_CHECK(::sem_init(turn_, /*pshared=*/1, 1) == 0);
    UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    if (!device.valid() || ::mount("none", path.c_str(), "fuse", 0, options.c_str()) != 0) return;
    // A process, because a thread that waits for the file system keeps all of its process's
    // descriptors: it could not end.
    const pid_t server = ::fork();
    SHUNT_CHECK(server >= 0);
    if (server == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it would keep the mount
      for (const int signal : {SIGTERM, SIGALRM}) ::signal(signal, SIG_DFL);
      ::alarm(30);
      Serve(device.get());
      ::_exit(0);
    }
    mounted_ = true;
  }

  bool mounted() const { return mounted_; }
  std::string file() const { return path_ + "/a"; }
  void Silence() { SHUNT_CHECK(::sem_wait(turn_) == 0); }
  void Speak() { SHUNT_CHECK(::sem_post(turn_) == 0); }

 private:
  static fuse_attr Attributes(uint64_t node) {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.nlink = 1;
    attributes.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
    attributes.size = node == 1 ? 0 : kBytes;
    attributes.blksize = 4096;
    return attributes;
  }
  template <typename T>
  static std::string Bytes(const T& answer) {
    return {reinterpret_cast<const char*>(&answer), sizeof(answer)};
  }
  // What is kept of its answers is kept for no time: each question comes here.
  static int Answer(const fuse_in_header& head, const char* body, std::string* answer) {
    switch (head.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = 31;
        out.max_write = 65536;
        *answer = Bytes(out);
        return 0;
      }
      case FUSE_LOOKUP: {
        if (std::strcmp(body, "a") != 0) return -ENOENT;
        fuse_entry_out out{};
        out.nodeid = 2;
        out.attr = Attributes(2);
        *answer = Bytes(out);
        return 0;
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr = Attributes(head.nodeid);
        *answer = Bytes(out);
        return 0;
      }
      case FUSE_OPEN:
        *answer = Bytes(fuse_open_out{});
        return 0;
      case FUSE_READ: {
        fuse_read_in in;
        std::memcpy(&in, body, sizeof(in));
        const size_t left = in.offset < kBytes ? kBytes - in.offset : 0;
        answer->assign(std::min<size_t>(in.size, left), 'a');
        return 0;
      }
      case FUSE_FLUSH:
      case FUSE_RELEASE:
        return 0;
      default:
        return -ENOSYS;
    }
  }
  void Serve(int device) {
    std::vector<char> request(1 << 18);
    for (;;) {
      const ssize_t got = ::read(device, request.data(), request.size());
      if (got < 0 && (errno == EINTR || errno == ENOENT)) continue;
      if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return;  // unmounted
      fuse_in_header head;
      std::memcpy(&head, request.data(), sizeof(head));
      if (head.opcode == FUSE_FORGET || head.opcode == FUSE_BATCH_FORGET ||
          head.opcode == FUSE_INTERRUPT) {
        continue;
      }
      Silence();
      Speak();
      std::string answer;
      const int error = Answer(head, request.data() + sizeof(head), &answer);
      const fuse_out_header out{.len = static_cast<uint32_t>(sizeof(out) + answer.size()),
                                .error = error,
                                .unique = head.unique};
      const std::string whole = Bytes(out) + answer;
      const ssize_t sent = ::write(device, whole.data(), whole.size());
      SHUNT_CHECK(sent == static_cast<ssize_t>(whole.size()) || errno == ENOENT);
    }
  }

  const std::string path_;
  sem_t* turn_ = nullptr;
  bool mounted_ = false;
};

}  // namespace shunt::storage::testing
