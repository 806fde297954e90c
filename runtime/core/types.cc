#include "runtime/core/types.h"

namespace shunt {

std::string_view Name(DataType t) {
  constexpr std::string_view kNames[kDataTypeCount] = {
      "int8",    "uint8",    "int32",   "uint32",  "int64",       "uint64",
      "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"};
  return IsValid(t) ? kNames[static_cast<int>(t)] : "unknown";
}

std::string_view Name(Redop r) {
  constexpr std::string_view kNames[kRedopCount] = {"sum", "prod", "min",
                                                    "max", "avg",  "premul_sum"};
  return IsValid(r) ? kNames[static_cast<int>(r)] : "unknown";
}

std::string_view Name(OpKind k) {
  constexpr std::string_view kNames[kOpKindCount] = {
      "barrier",    "all_reduce",   "reduce", "broadcast", "all_gather", "reduce_scatter",
      "all_to_all", "all_to_all_v", "gather", "scatter",   "send",       "recv"};
  return IsValid(k) ? kNames[static_cast<int>(k)] : "unknown";
}

}  // namespace shunt
