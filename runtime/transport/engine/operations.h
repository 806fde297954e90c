// Which operations of a communicator something was posted for lately, and which foreign ones have
// been told: what makes a header stray. Bounded: the oldest is forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "runtime/transport/transport.h"

namespace shunt::transport {

class Operations {
 public:
  explicit Operations(size_t kept_max) : kept_max_(kept_max) {}

  void Posted(const Tag& tag, Signature signature) {
    const Key key{tag.channel, tag.sequence};
    if (key == last_ && signature == last_signature_) return;  // the usual case
    last_ = key;
    last_signature_ = signature;
    if (!posted_.insert_or_assign(key, signature).second) return;
    order_.push_back(key);
    if (order_.size() <= kept_max_) return;
    if (order_.front() == last_) last_ = {~0u, ~0ull};
    posted_.erase(order_.front());
    order_.pop_front();
  }

  // True if something was posted for the operation, with this signature.
  bool Belongs(const Tag& tag, Signature signature) const {
    const auto found = posted_.find(Key{tag.channel, tag.sequence});
    return found != posted_.end() && found->second == signature;
  }

  // True for the first call with these arguments.
  bool TellOnce(PeerId peer, const Tag& tag, Signature signature) {
    const Told key{peer, tag.channel, tag.sequence, signature};
    if (!told_.insert(key).second) return false;
    told_order_.push_back(key);
    if (told_order_.size() > kept_max_) {
      told_.erase(told_order_.front());
      told_order_.pop_front();
    }
    return true;
  }

 private:
  using Key = std::tuple<uint32_t, uint64_t>;
  using Told = std::tuple<PeerId, uint32_t, uint64_t, Signature>;
  size_t kept_max_;
  Key last_{~0u, ~0ull};
  Signature last_signature_ = 0;
  absl::flat_hash_map<Key, Signature> posted_;
  std::deque<Key> order_;
  absl::flat_hash_set<Told> told_;
  std::deque<Told> told_order_;
};

}  // namespace shunt::transport
