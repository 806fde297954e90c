// Graphs: nodes that captures and users add; their executable copies; user objects.
#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "tests/gpu/fake_cuda/state.h"
#include "tests/gpu/fake_cuda/stream.h"

namespace shunt::fake_cuda {
namespace {

struct UserObject {
  void (*destroy)(void*) = nullptr;
  void* argument = nullptr;
  std::atomic<unsigned> references{0};

  // The last reference's end calls destroy on a thread of its own, as a driver's.
  void Release(unsigned count) {
    if (references.fetch_sub(count) != count) return;
    std::thread([this] {
      destroy(argument);
      delete this;
    }).detach();
  }
};

// References that graphs, their copies and launches under way hold together.
using Held = std::shared_ptr<UserObject>;

Held Hold(UserObject* object, unsigned count) {
  return Held(object, [count](UserObject* held) { held->Release(count); });
}

}  // namespace

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;  // each after those that it depends on
  std::vector<Held> objects;
};

namespace {

std::map<void*, std::unique_ptr<Graph>>& Graphs() {
  static auto* const graphs = new std::map<void*, std::unique_ptr<Graph>>;
  return *graphs;
}

struct Executable {
  struct Copy {
    Work work;
    std::vector<size_t> after;
  };
  std::vector<Copy> nodes;
  std::vector<Held> objects;
};

std::map<void*, std::shared_ptr<Executable>>& Executables() {
  static auto* const executables = new std::map<void*, std::shared_ptr<Executable>>;
  return *executables;
}

// One launch: steps every node whose turn has come, so that branches run side by side.
struct Launch {
  struct NodeRun {
    bool done = false;
    uint64_t progress = 0;
  };
  explicit Launch(std::shared_ptr<const Executable> of)
      : executable(std::move(of)), runs(executable->nodes.size()) {}

  bool Step() {
    bool all = true;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].done) continue;
      bool ready = true;
      for (const size_t before : executable->nodes[i].after) ready = ready && runs[before].done;
      runs[i].done = ready && executable->nodes[i].work(&runs[i].progress);
      all = all && runs[i].done;
    }
    return all;
  }

  std::shared_ptr<const Executable> executable;
  std::vector<NodeRun> runs;
};

Graph* Find(CUgraph raw) {
  const auto found = Graphs().find(raw);
  return found == Graphs().end() ? nullptr : found->second.get();
}

}  // namespace

Graph* MakeGraph() {
  auto graph = std::make_unique<Graph>();
  Graph* const made = graph.get();
  Graphs()[made] = std::move(graph);
  return made;
}

void DropGraph(Graph* graph) { Graphs().erase(graph); }

Node* AddNode(Graph* graph, Work work, std::vector<Node*> after) {
  graph->nodes.push_back(std::make_unique<Node>(Node{std::move(work), std::move(after)}));
  return graph->nodes.back().get();
}

}  // namespace shunt::fake_cuda

using namespace shunt::fake_cuda;

CUresult cuGraphCreate(CUgraph* graph, unsigned int /*flags*/) {
  FAKE_ENTER(cuGraphCreate, kLive);
  const std::lock_guard lock(Lock());
  *graph = reinterpret_cast<CUgraph>(MakeGraph());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph raw) {
  FAKE_ENTER(cuGraphDestroy, kInit);
  const std::lock_guard lock(Lock());
  if (Find(raw) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graphs().erase(raw);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph raw, unsigned long long /*flags*/) {
  FAKE_ENTER(cuGraphInstantiate, kContext);
  const std::lock_guard lock(Lock());
  const Graph* const graph = Find(raw);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Executable>();
  std::map<const Node*, size_t> places;
  for (const auto& node : graph->nodes) {
    Executable::Copy copy{node->work, {}};
    for (const Node* const before : node->after) copy.after.push_back(places.at(before));
    places[node.get()] = made->nodes.size();
    made->nodes.push_back(std::move(copy));
  }
  made->objects = graph->objects;
  *executable = reinterpret_cast<CUgraphExec>(made.get());
  Executables()[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec raw) {
  FAKE_ENTER(cuGraphExecDestroy, kInit);
  const std::lock_guard lock(Lock());
  return Executables().erase(raw) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec raw, CUstream raw_stream) {
  FAKE_ENTER(cuGraphLaunch, kContext);
  const auto stream = FindStream(raw_stream);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<const Executable> executable;
  {
    const std::lock_guard lock(Lock());
    const auto found = Executables().find(raw);
    if (found == Executables().end()) return CUDA_ERROR_INVALID_VALUE;
    executable = found->second;
  }
  auto launch = std::make_shared<std::unique_ptr<Launch>>();
  return static_cast<CUresult>(Submit(stream, [executable, launch](uint64_t* progress) {
    // Captured into another graph it runs many times.
    if (*progress == 0) *launch = std::make_unique<Launch>(executable);
    *progress = 1;
    return (*launch)->Step();
  }));
}

CUresult cuUserObjectCreate(CUuserObject* object, void* argument, CUhostFn destroy,
                            unsigned int references, unsigned int flags) {
  FAKE_ENTER(cuUserObjectCreate, kLive);
  if (destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* const made = new UserObject;
  made->destroy = destroy;
  made->argument = argument;
  made->references = references;
  *object = reinterpret_cast<CUuserObject>(made);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  FAKE_ENTER(cuUserObjectRelease, kInit);
  reinterpret_cast<UserObject*>(object)->Release(count);
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph raw, CUuserObject raw_object, unsigned int count,
                                 unsigned int flags) {
  FAKE_ENTER(cuGraphRetainUserObject, kLive);
  const std::lock_guard lock(Lock());
  Graph* const graph = Find(raw);
  if (graph == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const object = reinterpret_cast<UserObject*>(raw_object);
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->references += count;
  graph->objects.push_back(Hold(object, count));
  return CUDA_SUCCESS;
}
