#include "bench/harness/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "bench/harness/record.h"

namespace shunt::bench {
namespace {

// Turns a parser of ours into a CLI11 callback with a message that names the value.
template <typename T, typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, T* out, Parse parse,
                       const std::string& known, const std::string& help,
                       const std::string& shown_default) {
  return app
      .add_option_function<std::string>(
          name,
          [name, out, parse, known](const std::string& text) {
            const auto value = parse(text);
            if (!value) {
              throw CLI::ValidationError(name, "\"" + text + "\" is not known; known: " + known);
            }
            *out = *value;
          },
          help)
      ->default_str(shown_default);
}

uint64_t BytesOrThrow(const std::string& option, const std::string& text) {
  uint64_t bytes = 0;
  const absl::Status status = ParseBytes(text, &bytes);
  if (!status.ok()) throw CLI::ValidationError(option, std::string(status.message()));
  return bytes;
}

std::string AllNames(int count, std::string (*name)(int)) {
  std::string names;
  for (int i = 0; i < count; ++i) names += (i == 0 ? "" : " ") + name(i);
  return names;
}

std::string OperationName(int i) { return std::string(Name(static_cast<Operation>(i))); }
std::string DataTypeName(int i) { return std::string(shunt::Name(static_cast<DataType>(i))); }
std::string RedopName(int i) { return std::string(shunt::Name(static_cast<Redop>(i))); }

// "0-3,8" as a list.
std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    const bool more = parsed.ptr < end;
    if (parsed.ec != std::errc() || first < 0 || last < first || last >= 1024 ||
        (more && *parsed.ptr != ',')) {
      throw CLI::ValidationError("--cpus", "\"" + text + "\" is not a list like 0-3,8");
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr + (more ? 1 : 0);
  }
  return cpus;
}

// The raw texts of a sweep, until they can be checked together.
struct SweepTexts {
  std::string min_bytes = "8";
  std::string max_bytes = "16M";
  double factor = 2;
  std::vector<std::string> sizes;
  double block_ms = 20;
};

void AddSweep(CLI::App& app, SweepOptions* o, SweepTexts* texts, const std::string& placement) {
  app.add_option("--ranks", o->ranks, "Processes in all")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  AddParsed(
      app, "--memory", &o->memory,
      [](const std::string& t) -> std::optional<Memory> {
        if (t == "host") return Memory::kHost;
        if (t == "malloc") return Memory::kMalloc;
        if (t == "cuda") return Memory::kCuda;
        if (t == "cuda-host") return Memory::kCudaHost;
        return std::nullopt;
      },
      "host malloc cuda cuda-host",
      "Shunt's buffers: host (shared regions), malloc (plain memory), cuda (GPUs, one after the "
      "other; operations are then on streams, and timed there); of pull and push also cuda-host "
      "(a GPU's on the side that moves, regions on the other)",
      "host");
  AddParsed(
      app, "--placement", &o->placement,
      [](const std::string& t) -> std::optional<Placement> {
        if (t == "in") return Placement::kIn;
        if (t == "out") return Placement::kOut;
        if (t == "both") return Placement::kBoth;
        return std::nullopt;
      },
      "in out both", "in place, out of place: in, out or both", placement);
  const std::string types = AllNames(kDataTypeCount, DataTypeName);
  const std::string redops = AllNames(kRedopCount, RedopName);
  AddParsed(app, "--dtype", &o->dtype, ParseDataType, types, "One of: " + types, "float32");
  AddParsed(app, "--redop", &o->redop, ParseRedop, redops, "One of: " + redops, "sum");
  app.add_option("--root", o->root, "Root rank, where the operation has one")
      ->capture_default_str();
  app.add_option("--min-bytes", texts->min_bytes, "First size; K, M and G are powers of 1024")
      ->capture_default_str();
  app.add_option("--max-bytes", texts->max_bytes, "Last size")->capture_default_str();
  app.add_option("--factor", texts->factor, "From a size to the next one")
      ->check(CLI::Range(1.01, 1e6))
      ->capture_default_str();
  app.add_option("--sizes", texts->sizes, "These sizes instead, separated by commas")
      ->delimiter(',');
  app.add_option("--iters", o->iterations, "Iterations of a timed block; 0: as many as fill it")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--warmup", o->warmup, "First number of warm-up iterations; 0: by time alone")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--blocks", o->blocks, "Timed blocks of a measurement; their median counts")
      ->check(CLI::Range(1, kMaxBlocks))
      ->capture_default_str();
  app.add_option("--block-ms", texts->block_ms, "Length of a timed block, in milliseconds")
      ->check(CLI::Range(0.1, 60'000.0))
      ->capture_default_str();
  app.add_flag("--check,!--no-check", o->check,
               "Compare results bit by bit on every rank before and after timing (default on)");
  app.add_option("--json", o->json, "Also write the results to this file (-: stdout)");
  app.add_option("--socket", o->socket,
                 "A running daemon's socket; without it a private daemon is started");
  app.add_option(
         "--nodes", o->nodes,
         "Nodes: network namespaces of this machine, a daemon and an even share of the ranks "
         "on each")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--link-rate", o->link_rate,
                 "With --nodes: shapes each direction of each node's link, e.g. 250mbit; default: "
                 "unshaped");
  app.add_option("--aggregators", o->aggregators,
                 "With --nodes: further nodes whose daemons aggregate")
      ->check(CLI::Range(0, 16));
  app.add_option("--algorithm", o->algorithm,
                 "With --nodes: Shunt's algorithm between nodes (SHUNT_ALGORITHM); default: its "
                 "own choice");
}

void FinishSweep(const SweepTexts& texts, SweepOptions* o) {
  o->block_ns = static_cast<int64_t>(texts.block_ms * 1e6);
  if (o->root < 0 || o->root >= o->ranks) {
    throw CLI::ValidationError(
        "--root", std::to_string(o->root) + " is not a rank of " + std::to_string(o->ranks));
  }
  if (o->ranks < o->nodes) {
    throw CLI::ValidationError("--nodes", std::to_string(o->nodes) + " nodes need as many ranks, " +
                                              std::to_string(o->ranks) + " given");
  }
  const bool shaped = !o->link_rate.empty() || o->aggregators > 0 || !o->algorithm.empty();
  if (o->nodes == 1 && shaped) {
    throw CLI::ValidationError("--nodes",
                               "--link-rate, --aggregators and --algorithm need at least 2, is 1");
  }
  if (o->nodes > 1 && !o->socket.empty()) {
    throw CLI::ValidationError("--socket", "with --nodes every node has a private daemon");
  }
  for (const std::string& size : texts.sizes) o->sizes.push_back(BytesOrThrow("--sizes", size));
  if (!o->sizes.empty()) return;
  const uint64_t first = BytesOrThrow("--min-bytes", texts.min_bytes);
  const uint64_t last = BytesOrThrow("--max-bytes", texts.max_bytes);
  if (first == 0 || first > last) {
    throw CLI::ValidationError("--min-bytes",
                               "must be between 1 and --max-bytes, is " + texts.min_bytes);
  }
  for (double size = static_cast<double>(first); size <= static_cast<double>(last) * (1 + 1e-9);
       size *= texts.factor) {
    o->sizes.push_back(static_cast<uint64_t>(std::llround(size)));
  }
}

// Of read and write, whose size is 1024 pieces unless one is asked for.
void CheckStore(const CLI::App& app, PerfOptions* o) {
  if (o->file.empty() == o->endpoint.empty()) {
    throw CLI::ValidationError(o->op, "needs one of --file and --endpoint");
  }
  if (!o->endpoint.empty() && (o->bucket.empty() || o->key.empty())) {
    throw CLI::ValidationError("--endpoint", "needs --bucket and --key");
  }
  if (o->endpoint.find("://") == std::string::npos ? !o->endpoint.empty() && o->socket.empty()
                                                   : !o->socket.empty()) {
    throw CLI::ValidationError("--endpoint",
                               "\"" + o->endpoint + "\": expected a URL, or a name with --socket");
  }
  if (o->nodes > 1) throw CLI::ValidationError("--nodes", "read and write are of one node");
  if (app.count("--sizes") + app.count("--min-bytes") + app.count("--max-bytes") == 0) {
    o->sizes = {1024 * o->piece_bytes};
  }
}

void CheckGpu(bool moves, const PerfOptions& o) {
  const bool cuda = o.memory == Memory::kCuda || o.memory == Memory::kCudaHost;
  if (!cuda && (o.graph_calls > 0 || o.after_kernel_us > 0)) {
    throw CLI::ValidationError("--graph", "it and --after-kernel-us need --memory cuda");
  }
  if (cuda && !moves && !ParseOperation(o.op)) {
    throw CLI::ValidationError("--memory",
                               "cuda is for operations, pull and push, not for " + o.op);
  }
  if (o.memory == Memory::kCudaHost && !moves) {
    throw CLI::ValidationError("--memory", "cuda-host is for pull and push, not for " + o.op);
  }
  if (cuda && o.nodes > 1) {
    throw CLI::ValidationError(
        "--nodes", "GPU memory is of one node, " + std::to_string(o.nodes) + " are asked for");
  }
}

template <typename Finish>
std::optional<int> Parse(CLI::App& app, int argc, char** argv, Finish&& finish) {
  try {
    app.parse(argc, argv);
    finish();
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetCluster>> StartNodes(const SweepOptions& options) {
  if (options.nodes < 2) return nullptr;
  if (!options.algorithm.empty()) ::setenv("SHUNT_ALGORITHM", options.algorithm.c_str(), 1);
  return NetCluster::Start(options.nodes, options.link_rate, options.aggregators);
}

std::optional<int> ParsePerfOptions(int argc, char** argv, PerfOptions* options) {
  CLI::App app(
      "Benchmarks Shunt's collectives on this node, in the columns of nccl-tests.\n"
      "Sizes are in bytes as nccl-tests counts them: the whole buffer (ranks x count) for "
      "all_gather,\n"
      "reduce_scatter, all_to_all, all_to_all_v, gather and scatter. time is the mean over a "
      "block's\n"
      "iterations on the slowest rank, then the median over blocks; algbw = size / time; busbw = "
      "algbw x\n"
      "2(n-1)/n (all_reduce), (n-1)/n (the ones above), 1 (others).",
      "shunt-perf");
  SweepTexts texts;
  std::string cpus;
  std::string bind = "none";
  std::string piece_bytes;
  app.add_option(
         "op", options->op,
         "Operation: " + AllNames(kOperationCount, OperationName) +
             "; or pull, push (transfers between pairs of ranks), read, write (transfers from or "
             "to "
             "a file or an object), join (time to make a communicator), open (time to open a "
             "session), soak "
             "(what the daemon keeps of dead sessions and communicators), idle (its CPU time "
             "with 4 idle sessions)")
      ->required();
  AddSweep(app, options, &texts, "both");
  app.add_option("--cpus", cpus, "Ranks may run on these only, e.g. 0-3,8; default: all");
  app.add_option("--bind", bind,
                 "cores: bind rank i to the i-th of --cpus; none: leave it to Linux")
      ->check(CLI::IsMember({"none", "cores"}))
      ->capture_default_str();
  app.add_option(
         "--count", options->count,
         "join: communicators (200); open: processes (20); soak: communicators, and a tenth "
         "as many sessions (10000); idle: seconds (10)")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option("--piece-bytes", piece_bytes,
                 "pull, push, read, write: bytes of a piece, at most (16K; read, write: 128K)");
  app.add_option("--form", options->form,
                 "Of transfers: ids (permuted, 32 bits), runs (of one permuted piece each), pieces "
                 "(raw ones, permuted) or all (in order)")
      ->check(CLI::IsMember({"ids", "runs", "pieces", "all"}))
      ->capture_default_str();
  app.add_option("--in-flight", options->in_flight, "pull, push: transfers at once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--file", options->file,
                 "read, write: this file, in place, its sync included; one that is not there is "
                 "made, and removed again. write overwrites it");
  app.add_option("--endpoint", options->endpoint,
                 "read, write: an object instead, which is overwritten: a URL, or the name that "
                 "--socket's daemon has for it; keys from $AWS_ACCESS_KEY_ID, "
                 "$AWS_SECRET_ACCESS_KEY and $AWS_SESSION_TOKEN");
  app.add_option("--bucket", options->bucket, "Of --endpoint");
  app.add_option("--key", options->key, "Of --bucket");
  app.add_option("--bound-threads", options->bound_threads,
                 "read, write of a file: also by so many threads with preadv or pwritev and "
                 "O_DIRECT, in turn with it; 0: not")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--graph", options->graph_calls,
                 "With --memory cuda: time replays of a captured graph of so many calls; 0: calls")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}))
      ->capture_default_str();
  app.add_option("--after-kernel-us", options->after_kernel_us,
                 "With --memory cuda: about so much other work on the stream before each timed "
                 "block, behind which the calls are enqueued ahead")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--open-child", options->open_child)->group("");  // open starts itself with it
  return Parse(app, argc, argv, [&] {
    FinishSweep(texts, options);
    options->cpus = ParseCpuList(cpus);
    options->bind = bind == "cores";
    const bool stores = options->op == "read" || options->op == "write";
    if (piece_bytes.empty()) piece_bytes = stores ? "128K" : "16K";
    options->piece_bytes = BytesOrThrow("--piece-bytes", piece_bytes);
    if (stores) CheckStore(app, options);
    if (options->piece_bytes == 0) throw CLI::ValidationError("--piece-bytes", "is 0");
    const bool moves = options->op == "pull" || options->op == "push";
    if (moves && options->ranks % 2 != 0) {
      throw CLI::ValidationError("--ranks", std::to_string(options->ranks) +
                                                ": transfers are between pairs, so an even number");
    }
    CheckGpu(moves, *options);
    const bool other = moves || stores || options->op == "join" || options->op == "open" ||
                       options->op == "soak" || options->op == "idle";
    if (!other && !ParseOperation(options->op)) {
      throw CLI::ValidationError("op", "\"" + options->op + "\" is not an operation; known: " +
                                           AllNames(kOperationCount, OperationName) +
                                           " pull push read write join open soak idle");
    }
  });
}

std::optional<int> ParseCompareOptions(int argc, char** argv, CompareOptions* options) {
  CLI::App app(
      "Runs the same operations on a peer library and on Shunt in turn, on this node, and prints "
      "one\n"
      "table. Both sides are timed by the same code: in each of --rounds rounds both run every "
      "size once\n"
      "(peer, then Shunt; then the other way around), and the median of the rounds counts. Peers "
      "work on\n"
      "malloc memory always. ratio = peer's time / Shunt's time.",
      "compare");
  SweepTexts texts;
  std::string sides = "both";
  std::string op;
  app.add_option(
         "peer", options->peer,
         "openmpi, mpich or gloo; with --nodes gloo, or bare: recursive doubling over plain "
         "sockets, all_reduce of up to 64K")
      ->required()
      ->check(CLI::IsMember({"openmpi", "mpich", "gloo", "bare"}));
  app.add_option("op", op, "Operation: " + AllNames(kOperationCount, OperationName))->required();
  AddSweep(app, options, &texts, "out");
  app.add_option("--rounds", options->rounds, "Interleaved rounds")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--bound", options->bound,
               "Also measure the one-pass memory bound in each round (float32; all_reduce, "
               "all_gather, reduce_scatter, all_to_all)");
  app.add_option("--sides", sides, "both, peer or shunt: which sides to run")
      ->check(CLI::IsMember({"both", "peer", "shunt"}))
      ->capture_default_str();
  options->placement = Placement::kOut;
  return Parse(app, argc, argv, [&] {
    FinishSweep(texts, options);
    if (options->memory != Memory::kHost && options->memory != Memory::kMalloc) {
      throw CLI::ValidationError("--memory", "peers have host and malloc only");
    }
    const auto parsed = ParseOperation(op);
    if (!parsed)
      throw CLI::ValidationError("op", "\"" + op + "\" is not an operation; known: " +
                                           AllNames(kOperationCount, OperationName));
    options->op = *parsed;
    options->run_peer = sides != "shunt";
    options->run_shunt = sides != "peer";
  });
}

std::optional<int> ParseLimitsOptions(int argc, char** argv, LimitsOptions* options) {
  CLI::App app(
      "Measures what this machine can do at most: copy bandwidth, one-pass bounds of collectives "
      "over\n"
      "shared memory (bytes of one pass: all_reduce and all_to_all 2nS, all_gather and "
      "reduce_scatter\n"
      "(n+1)S; all cores; the faster of ordinary and non-temporal stores), and the costs of "
      "waiting.",
      "limits");
  std::vector<std::string> sizes;
  std::string placement = "out";
  double block_ms = 30;
  app.add_option("--ranks", options->ranks, "Numbers of ranks, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(2, kMaxRanks))
      ->capture_default_str();
  app.add_option("--bytes", sizes, "Sizes S, separated by commas (default 2M,16M)")->delimiter(',');
  app.add_option("--placement", placement, "in or out")
      ->check(CLI::IsMember({"in", "out"}))
      ->capture_default_str();
  app.add_option("--blocks", options->blocks, "Timed blocks; their median counts")
      ->check(CLI::Range(1, kMaxBlocks))
      ->capture_default_str();
  app.add_option("--block-ms", block_ms, "Length of a block, in milliseconds")
      ->check(CLI::Range(0.1, 60'000.0))
      ->capture_default_str();
  app.add_option("--nodes", options->nodes,
                 "Measure the links between so many nodes (network namespaces) instead")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--link-rate", options->link_rate, "With --nodes: the rate of shaped links")
      ->capture_default_str();
  app.add_option("--json", options->json, "Also write the results to this file (-: stdout)");
  return Parse(app, argc, argv, [&] {
    options->block_ns = static_cast<int64_t>(block_ms * 1e6);
    options->in_place = placement == "in";
    if (sizes.empty()) return;
    options->sizes.clear();
    for (const std::string& size : sizes) options->sizes.push_back(BytesOrThrow("--bytes", size));
  });
}

}  // namespace shunt::bench
