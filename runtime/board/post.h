// How a call becomes a post: the parts that a member and the daemon (for ranks without libshunt)
// share.
#pragma once

#include <cstdint>

#include "runtime/board/layout.h"
#include "runtime/board/member.h"

namespace shunt::board {

// Kind, type, reduction, root, count and scalar; fields that the kind has no use for become zero,
// so that posts can be compared as they are.
void FillSignature(const Call& call, PostBody* body);

// Bytes from the start of each buffer that the call may touch; ~0 if that overflows.
struct Extents {
  uint64_t in_bytes, out_bytes;
};
Extents ExtentsOf(const Board& board, const Call& call, const PostBody& signature,
                  const Channel& channel, int participant);

// Copies an all_to_all_v's counts and displacements to the board; nothing for other kinds.
void WriteTable(const Call& call, const Channel& channel, uint64_t seq, int participant);

// A copy of what somebody may be writing at this moment: torn perhaps, but not a data race. For
// those who may come after the operation's end, when its slot serves a later one. Participants can
// read in place until they retire it.
PostBody ReadBody(const Post& post);
void ReadTable(const Channel& channel, uint64_t seq, int participant, VRow* rows);

// Writes the body, notes it as the rank's last call, and publishes it; false if it was sealed
// before. `posted_ns`: when it was called; `waits`: the rank does nothing else until it ends.
// `*note`: its number among the rank's calls.
bool WritePost(const Board& board, const Channel& channel, uint64_t seq, int participant,
               const PostBody& body, int64_t posted_ns, bool waits, uint64_t* note);
// From now on the rank waits for its call, or does not any more.
void NoteWaits(const Board& board, const Channel& channel, uint64_t seq, int participant,
               const PostBody& body, bool waits, uint64_t note);

// What a call's words hold for the recorder: places of its buffers (2 bits each at 24 and 26),
// whether the daemon sees it through (bit 28), and whether the rank waits for it (bit 29).
inline Place InPlaceOf(uint64_t words) { return static_cast<Place>(words >> 24 & 3); }
inline Place OutPlaceOf(uint64_t words) { return static_cast<Place>(words >> 26 & 3); }
inline bool ServedIn(uint64_t words) { return (words >> 28 & 1) != 0; }
inline bool WaitsIn(uint64_t words) { return (words >> 29 & 1) != 0; }

}  // namespace shunt::board
