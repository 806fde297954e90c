// Streams, and graphs, which hold the same work.
//
// Work is stepped until it says that it is done: a wait says "not yet", and whoever steps it may
// step something else meanwhile. `progress` is 0 at a run's first step, and the work's own after.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace shunt::fake_cuda {

struct Context;
struct Graph;
class Stream;

using Work = std::function<bool(uint64_t* progress)>;

struct Node {
  Work work;
  std::vector<Node*> after;
};

// A capture under way, shared by the streams that take part.
struct Capture {
  uint64_t id = 0;
  Graph* graph = nullptr;
  Stream* origin = nullptr;
  int mode = 0;           // CUstreamCaptureMode
  std::thread::id begun;  // by which thread
  bool broken = false;
};

class Stream {
 public:
  // With its thread, which lives until Close() and all work before it.
  static std::shared_ptr<Stream> Make(Context* context);
  Context* context() const { return context_; }

  void Push(Work work);
  bool Idle();
  void WaitUntilIdle();
  void Close();

  // With Lock() held. What the next captured work depends on.
  std::shared_ptr<Capture> capture;
  std::vector<Node*> last;

 private:
  explicit Stream(Context* context) : context_(context) {}
  void Run();

  Context* const context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;  // the front one runs
  bool closed_ = false;
};

// By handle; the default ones are not among them. With Lock() held.
std::map<void*, std::shared_ptr<Stream>>& Streams();

// Of a user's handle (0, 1, 2: the current context's default); null if it is none. Takes Lock().
std::shared_ptr<Stream> FindStream(void* raw);

// Enqueues, or adds to the graph that is being captured. 0, or the code of a failed capture.
int Submit(const std::shared_ptr<Stream>& stream, Work work);

// Until nothing is enqueued anywhere.
void SynchronizeAll();

// Between two steps that did nothing: the first are short.
void Pause(uint64_t steps);

// A new graph that lives, for Begin; and its end where a capture failed. With Lock() held.
Graph* MakeGraph();
void DropGraph(Graph* graph);
Node* AddNode(Graph* graph, Work work, std::vector<Node*> after);

}  // namespace shunt::fake_cuda
