// The copies of one team of threads, a warp or a block: any length, any alignment.
//
// Between places that agree modulo 16, vectors, four in flight in a thread. Otherwise the
// destination gets vectors that are put together of two of the source's, the second of which is the
// next thread's first: the memory sees one read. An aligned vector is read only if the piece has a
// byte in it, so no read leaves the allocation.
#pragma once

#include <cstdint>

#include "runtime/gpu/kernels/device.h"

namespace shunt::gpu {

inline constexpr uint32_t kInFlight = 4;

// One thread's place among those that copy a piece together.
struct Team {
  uint32_t thread, threads;
};

SHUNT_DEVICE Vec16 LoadCached(uint64_t address) {
#ifdef __CUDACC__
  const uint4 v = *reinterpret_cast<const uint4*>(address);
  return {{v.x, v.y, v.z, v.w}};
#else
  return LoadStreaming(address);
#endif
}

SHUNT_DEVICE void CopyBytes(uint64_t destination, uint64_t source, uint32_t bytes,
                            const Team& team) {
  for (uint32_t i = team.thread; i < bytes; i += team.threads) {
    StoreAligned<uint8_t>(destination + i, LoadAligned<uint8_t>(source + i));
  }
}

// Of low and then high, the bytes from 4 * kWord + bits / 8 on.
template <uint32_t kWord>
SHUNT_DEVICE Vec16 Shifted(const Vec16& low, const Vec16& high, uint32_t bits) {
  const uint32_t all[9] = {low.word[0],  low.word[1],  low.word[2],
                           low.word[3],  high.word[0], high.word[1],
                           high.word[2], high.word[3], 0};
  Vec16 v;
  SHUNT_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
#ifdef __CUDACC__
    v.word[i] = __funnelshift_r(all[kWord + i], all[kWord + i + 1], bits);
#else
    const uint64_t both = all[kWord + i] | uint64_t{all[kWord + i + 1]} << 32;
    v.word[i] = static_cast<uint32_t>(both >> bits);
#endif
  }
  return v;
}

// `destination` is aligned, `source` lies `shift` bytes behind an aligned address.
template <uint32_t kWord>
SHUNT_DEVICE void CopyShifted(uint64_t destination, uint64_t source, uint32_t vectors,
                              const Team& team) {
  const uint64_t aligned = source & ~uint64_t{15};
  const uint32_t bits = 8 * static_cast<uint32_t>(source & 3);
  for (uint32_t first = team.thread; first < vectors; first += 2 * team.threads) {
    const uint32_t second = first + team.threads;
    const bool both = second < vectors;
    const Vec16 low0 = LoadCached(aligned + uint64_t{16} * first);
    const Vec16 high0 = LoadCached(aligned + uint64_t{16} * first + 16);
    Vec16 low1{}, high1{};
    if (both) {
      low1 = LoadCached(aligned + uint64_t{16} * second);
      high1 = LoadCached(aligned + uint64_t{16} * second + 16);
    }
    StoreStreaming(destination + uint64_t{16} * first, Shifted<kWord>(low0, high0, bits));
    if (both)
      StoreStreaming(destination + uint64_t{16} * second, Shifted<kWord>(low1, high1, bits));
  }
}

// Vectors of one source to `destinations` places, at(d), all aligned; the source itself is skipped.
template <class At>
SHUNT_DEVICE void CopyVectors(uint32_t destinations, const At& at, uint64_t source,
                              uint32_t vectors, const Team& team) {
  const uint32_t tile = kInFlight * team.threads;
  uint32_t first = 0;
  for (; first + tile <= vectors; first += tile) {
    Vec16 v[kInFlight];
    SHUNT_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      v[i] = LoadStreaming(source + uint64_t{16} * (first + i * team.threads + team.thread));
    }
    for (uint32_t d = 0; d < destinations; ++d) {
      const uint64_t destination = at(d);
      if (destination == source) continue;
      SHUNT_UNROLL
      for (uint32_t i = 0; i < kInFlight; ++i) {
        StoreStreaming(destination + uint64_t{16} * (first + i * team.threads + team.thread), v[i]);
      }
    }
  }
  if (first == vectors) return;
  Vec16 v[kInFlight];
  SHUNT_UNROLL
  for (uint32_t i = 0; i < kInFlight; ++i) {
    const uint32_t mine = first + i * team.threads + team.thread;
    if (mine < vectors) v[i] = LoadStreaming(source + uint64_t{16} * mine);
  }
  for (uint32_t d = 0; d < destinations; ++d) {
    const uint64_t destination = at(d);
    if (destination == source) continue;
    SHUNT_UNROLL
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const uint32_t mine = first + i * team.threads + team.thread;
      if (mine < vectors) StoreStreaming(destination + uint64_t{16} * mine, v[i]);
    }
  }
}

SHUNT_DEVICE void CopyPiece(uint64_t destination, uint64_t source, uint32_t bytes,
                            const Team& team) {
  if (bytes < 64 && ((destination | source | bytes) & 15) != 0) {
    CopyBytes(destination, source, bytes, team);
    return;
  }
  const uint32_t head = (0 - static_cast<uint32_t>(destination)) & 15;
  const uint32_t vectors = (bytes - head) / 16;
  const uint32_t tail = (bytes - head) % 16;
  CopyBytes(destination, source, head, team);
  const uint64_t to = destination + head, from = source + head;
  switch ((from & 15) / 4) {
    case 0:
      if ((from & 15) == 0) {
        CopyVectors(
            1, [to](uint32_t) { return to; }, from, vectors, team);
      } else {
        CopyShifted<0>(to, from, vectors, team);
      }
      break;
    case 1:
      CopyShifted<1>(to, from, vectors, team);
      break;
    case 2:
      CopyShifted<2>(to, from, vectors, team);
      break;
    default:
      CopyShifted<3>(to, from, vectors, team);
  }
  CopyBytes(to + uint64_t{16} * vectors, from + uint64_t{16} * vectors, tail, team);
}

}  // namespace shunt::gpu
