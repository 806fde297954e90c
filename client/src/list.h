// Lists of pieces that transfers name: of the session's own memory, or of a section that another
// agent has published. The daemon has the descriptors; here is what was learned of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/src/session.h"
#include "client/src/transfer_messages.h"

namespace shunt::client {

class File;

// Immutable. Keeps its session, and gives the list back to the daemon in the end.
class List {
 public:
  // A section's list of the session's own is given back with the section, others by this object.
  enum class Kind { kPublished, kPrepared, kFetched };

  // `files` are what the sets lie in, as far as that is no memory: open as long as the list is.
  using Files = std::vector<std::shared_ptr<File>>;
  static absl::StatusOr<std::shared_ptr<const List>> Publish(
      const std::shared_ptr<Session>& session, const PublishSection& request, Files files);
  static absl::StatusOr<std::shared_ptr<const List>> Prepare(
      const std::shared_ptr<Session>& session, const PrepareList& request, Files files);
  static absl::StatusOr<std::shared_ptr<const List>> Fetch(const std::shared_ptr<Session>& session,
                                                           const FetchSection& request);
  ~List();
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  Session& session() const { return *session_; }
  Kind kind() const { return kind_; }
  const ListInfo& info() const { return info_; }
  // 0 for prepared lists.
  uint64_t version() const { return version_; }
  // Of a fetched section: the agent's incarnation and node ("": this one).
  uint64_t incarnation() const { return incarnation_; }
  const std::string& node() const { return node_; }
  // Whether it names the session's own region.
  bool Names(uint64_t region_id) const;

 private:
  List(std::shared_ptr<Session> session, Kind kind) : session_(std::move(session)), kind_(kind) {}

  const std::shared_ptr<Session> session_;
  const Kind kind_;
  ListInfo info_;
  uint64_t version_ = 0;
  uint64_t incarnation_ = 0;
  std::string node_;
  std::vector<uint64_t> regions_;  // own ones, by id
  Files files_;                    // given up after the list
};

}  // namespace shunt::client
