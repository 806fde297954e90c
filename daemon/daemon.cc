#include "daemon/daemon.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/cluster/address.h"
#include "daemon/cluster/cluster.h"
#include "daemon/communicator_table.h"
#include "daemon/config_reload.h"
#include "daemon/data_transport.h"
#include "daemon/event_loop.h"
#include "daemon/gpu/device_regions.h"
#include "daemon/gpu/gpu_engine.h"
#include "daemon/gpu/workers.h"
#include "daemon/grpc_server.h"
#include "daemon/lease_server.h"
#include "daemon/liveness.h"
#include "daemon/log.h"
#include "daemon/metrics/collector.h"
#include "daemon/metrics/exporter.h"
#include "daemon/metrics/interface.h"
#include "daemon/probe.h"
#include "daemon/scheduler.h"
#include "daemon/services.h"
#include "daemon/session_table.h"
#include "daemon/storage_check.h"
#include "daemon/transfer/remote_sections.h"
#include "daemon/transfer/store_regions.h"
#include "daemon/transfer/transfer_table.h"
#include "daemon/version.h"
#include "runtime/core/clock.h"
#include "runtime/core/status.h"

namespace shunt::daemon {
namespace {

constexpr int kDefaultWorkersMax = 8;
constexpr int64_t kDefaultSpinUs = 20;
// While the daemon stops it looks this often whether operations still run.
constexpr auto kStopPoll = std::chrono::milliseconds(5);
// A communicator that an aggregator was opened for and that no node uses is forgotten then: its
// coordinator may have died before it could tell them. A join takes seconds at most from there.
constexpr auto kUnusedMax = std::chrono::seconds(120);
constexpr auto kTellingMax = std::chrono::seconds(1);
constexpr auto kStoresMax = std::chrono::seconds(1);

// The directory of the socket, if it is missing and below /run, which is empty after a boot.
absl::Status MakeParent(const std::string& socket) {
  const std::string parent = std::filesystem::path(socket).parent_path();
  struct stat info {};
  if (!parent.starts_with("/run/") || ::stat(parent.c_str(), &info) == 0) return absl::OkStatus();
  if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("making the socket's directory ", parent));
  }
  return absl::OkStatus();
}

// An ordinary user may not make files in /run/shunt, the default.
absl::Status WithSocketHint(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::PermissionDeniedError(
      absl::StrCat(status.message(),
                   "; name a place where this user may make files, e.g. --socket "
                   "${XDG_RUNTIME_DIR:-/tmp}/shunt.sock, and the same in clients' $SHUNT_SOCKET"));
}

memory::Quotas QuotasOf(const Config& config, const topology::Topology& topology) {
  memory::Quotas quotas;
  quotas.total_bytes = config.memory_total != 0 ? config.memory_total : topology.memory_bytes / 2;
  quotas.tenant_bytes =
      config.memory_per_tenant != 0 ? config.memory_per_tenant : quotas.total_bytes;
  quotas.session_bytes =
      config.memory_per_session != 0 ? config.memory_per_session : quotas.tenant_bytes;
  quotas.session_regions = static_cast<uint64_t>(config.max_regions_per_session);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) quotas.total_regions = files.rlim_cur / 2;
  return quotas;
}

StoreRegions::Options StoresOf(const Config& config) {
  StoreRegions::Options options;
  for (const StorageRoot& root : config.storage_roots) {
    options.roots.push_back({root.name, root.path});
  }
  for (const StorageEndpoint& s3 : config.storage_s3) {
    options.endpoints.push_back({s3.name, EndpointOf(s3), SourceOf(s3), s3.users});
  }
  for (const StoragePlugin& plugin : config.storage_plugins) {
    options.plugins.push_back({plugin.name, plugin.library, plugin.options});
  }
  options.session_regions = static_cast<uint64_t>(config.max_regions_per_session);
  rlimit files{};
  // A draft has up to four: itself twice, once for O_DIRECT, and its two directories.
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) options.total_regions = files.rlim_cur / 16;
  options.user_regions = std::max<uint64_t>(1, options.total_regions / 2);
  return options;
}

GpuWorkers::Options GpusOf(const Config& config) {
  using Enabled = GpuChoice::Enabled;
  GpuWorkers::Options options;
  options.choice.enabled = config.gpu_enabled == "on"    ? Enabled::kOn
                           : config.gpu_enabled == "off" ? Enabled::kOff
                                                         : Enabled::kAuto;
  options.choice.devices = config.gpu_devices;
  options.choice.worker = config.gpu_worker;
  options.choice.use_mps = config.gpu_mps == "use";
  return options;
}

DeviceRegions::Options DeviceRegionsOf(const Config& config) {
  DeviceRegions::Options options;
  options.session_regions = static_cast<uint64_t>(config.max_regions_per_session);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) options.total_regions = files.rlim_cur / 8;
  return options;
}

CommunicatorTable::Limits LimitsOf(const Config& config) {
  return {config.max_communicators_per_session, config.warm_communicators, config.warm_ttl.count()};
}

class DaemonImpl : public Daemon {
 public:
  DaemonImpl(const Config& config, GivenSockets given)
      : config_(config), live_(config), given_(std::move(given)) {}

  ~DaemonImpl() override {
    if (!started_) {
      // A part is missing: take down what there is, in order.
      exporter_.reset();
      if (stores_ != nullptr) stores_->Stop(DeadlineAfterNs(kStoresMax));
      if (transfers_ != nullptr) transfers_->Stop();
      if (gpu_engine_ != nullptr) gpu_engine_->Stop();
      if (gpus_ != nullptr) gpus_->Stop();
      grpc_.reset();
      OnLoop([this] { lease_.reset(); });
      LeaveCluster();
    } else if (!stopped_) {
      Shutdown(/*grace=*/std::chrono::nanoseconds(0));
    }
    StopThreads();
  }

  absl::Status Init() {
    SHUNT_ASSIGN_OR_RETURN(topology_, topology::Discover());
    SHUNT_ASSIGN_OR_RETURN(const topology::CpuList cpus, CheckWorkerCpus(config_, topology_));
    const int workers = config_.worker_threads != 0
                            ? static_cast<int>(config_.worker_threads)
                            : std::min<int>(kDefaultWorkersMax, static_cast<int>(cpus.size()));
    SHUNT_RETURN_IF_ERROR(TakeSockets());
    SHUNT_ASSIGN_OR_RETURN(loop_, EventLoop::Make());
    const memory::Quotas quotas = QuotasOf(config_, topology_);
    if (quotas.total_bytes > topology_.memory_bytes) {
      LogWarn("memory_total is more than the machine's memory",
              {{"memory_total", quotas.total_bytes}, {"machine", topology_.memory_bytes}});
    }
    regions_ = std::make_unique<memory::RegionTable>(quotas);
    sessions_ = std::make_unique<SessionTable>(
        SessionTable::Limits{config_.max_sessions, config_.max_sessions_per_tenant});
    operations_.regions = regions_.get();
    operations_.scheduler = &scheduler_;
    operations_.loop = loop_.get();
    operations_.probe = &probe_;
    communicators_ = std::make_unique<CommunicatorTable>(LimitsOf(config_), &operations_);

    StoreRegions::Options stores = StoresOf(config_);
    stores.at = [this](int64_t at_ns, std::function<void()> closure) {
      loop_->At(at_ns, std::move(closure));
    };
    stores.tallies = &store_tallies_;
    stores_ = std::make_unique<StoreRegions>(std::move(stores), regions_.get());
    SHUNT_RETURN_IF_ERROR(stores_->Start());
    TransferTable::Options transfers;
    transfers.threads = workers;
    transfers.probe = &probe_;
    transfers.on_thread_start = [this, cpus](int index) {
      ::pthread_setname_np(::pthread_self(), "shunt-copy");
      if (!PlacesWorkers()) return;
      const absl::Status bound =
          topology::BindThread(topology::CpusOfWorker(topology_, cpus, index));
      if (!bound.ok()) LogWarn("copy thread not bound", {{"error", bound.ToString()}});
    };
    transfers_ = std::make_unique<TransferTable>(std::move(transfers), regions_.get(),
                                                 stores_.get(), loop_.get());
    SHUNT_ASSIGN_OR_RETURN(gpus_, GpuWorkers::Start(GpusOf(config_)));
    device_regions_ =
        std::make_unique<DeviceRegions>(DeviceRegionsOf(config_), regions_.get(), gpus_.get());
    gpu_engine_ = std::make_unique<GpuEngine>(gpus_.get(), device_regions_.get(), regions_.get());
    operations_.gpus = gpu_engine_.get();
    transfers_->UseGpus(gpu_engine_.get(), device_regions_.get());
    remote_sections_ = std::make_unique<RemoteSections>(
        loop_.get(), config_.cluster.enabled() ? cluster::NodeName(config_.cluster) : "");

    ServiceContext context;
    context.config = &config_;
    context.topology = &topology_;
    context.worker_cpus = cpus;
    context.worker_threads = workers;
    context.lease_socket = std::filesystem::absolute(config_.socket + ".lease").string();
    context.incarnation = RandomNumber();
    context.loop = loop_.get();
    context.scheduler = &scheduler_;
    context.sessions = sessions_.get();
    context.regions = regions_.get();
    context.communicators = communicators_.get();
    context.operations = &operations_;
    context.stores = stores_.get();
    context.gpus = gpus_.get();
    context.device_regions = device_regions_.get();
    context.transfers = transfers_.get();
    context.remote_sections = remote_sections_.get();
    context.probe = &probe_;
    services_ = std::make_unique<Services>(std::move(context));

    Scheduler::Options options;
    options.threads = workers;
    if (PlacesWorkers()) {
      for (int i = 0; i < workers; ++i)
        options.cpus.push_back(topology::CpusOfWorker(topology_, cpus, i));
    }
    options.spin_ns = (config_.spin_us < 0 ? kDefaultSpinUs : config_.spin_us) * 1000;
    if (config_.spin_us < 0) {
      // What comes from other nodes is long in coming: only where CPUs are plenty.
      options.may_spin = [this, each = config_.cluster.enabled() ? 4 : 1] {
        return each * (sessions_->size() + 1) <= topology_.cpus.size();
      };
    }
    if (config_.cluster.enabled()) {
      SHUNT_RETURN_IF_ERROR(MakeEngine());
      options.source = {engine_->fd(), [this] { return engine_->Drive(); },
                        [this] { return engine_->next_ns(); }};
    }
    SHUNT_RETURN_IF_ERROR(scheduler_.Start(
        std::move(options),
        [this](const Services::SessionPtr& session, const ring::Submission& submission) {
          services_->OnSubmission(session, submission);
        },
        [this](const Services::SessionPtr& session, const absl::Status& why) {
          LogWarn(
              "ring corrupt",
              {{"session", session->id}, {"pid", session->peer.pid}, {"error", why.ToString()}});
          loop_->Post([this, session, why] {
            services_->EndSession(session, /*died=*/false, std::string(why.message()));
          });
        }));
    loop_thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "shunt-control");
      loop_->Run();
    });
    absl::Status status;
    OnLoop([this, &status] {
      absl::StatusOr<UnixListener> listener = Listener(&given_.lease, ".lease");
      status = listener.status();
      if (!listener.ok()) return;
      auto lease = LeaseServer::Start(
          *std::move(listener), static_cast<size_t>(config_.max_sessions) + 512,
          static_cast<size_t>(config_.max_sessions_per_tenant) + 128, loop_.get(), services_.get());
      status = lease.status();
      if (lease.ok()) lease_ = *std::move(lease);
    });
    SHUNT_RETURN_IF_ERROR(WithSocketHint(status));
    if (config_.cluster.enabled()) SHUNT_RETURN_IF_ERROR(JoinCluster());
    SHUNT_RETURN_IF_ERROR(StartMetrics());
    // Last: who finds the gRPC socket finds everything.
    SHUNT_ASSIGN_OR_RETURN(UnixListener listener, Listener(&given_.grpc, ""));
    SHUNT_ASSIGN_OR_RETURN(grpc_,
                           GrpcServer::Start(std::move(listener), loop_.get(), services_.get()));
    WatchThreads();
    if (collector_ != nullptr) {
      collector_->Watch("grpc", [this](auto question) { grpc_->Post(std::move(question)); });
    }
    started_ = true;
    LogInfo("shuntd is ready", {{"version", kVersion},
                                {"socket", config_.socket},
                                {"workers", workers},
                                {"worker_cpus", topology::FormatCpuList(cpus)},
                                {"memory_total", regions_->quotas().total_bytes}});
    return absl::OkStatus();
  }

  void Stop() override { Shutdown(live_.grace_period); }

  std::string Reload(const Config& read) override {
    std::vector<std::string> taken, waiting;
    for (const ConfigKey* key : ChangedKeys(live_, read)) {
      (ChangesLive(*key) ? taken : waiting).push_back(key->name);
    }
    live_ = WithLiveKeys(live_, read);
    SetLogLevel(live_.log_level);
    regions_->SetQuotas(QuotasOf(live_, topology_));
    communicators_->SetLimits(LimitsOf(live_));
    std::string words =
        taken.empty() ? "nothing changed" : absl::StrCat("changed ", absl::StrJoin(taken, ", "));
    LogInfo("configuration read again", {{"changed", absl::StrJoin(taken, ", ")}});
    if (!waiting.empty()) {
      LogWarn("keys that change at the next start only", {{"keys", absl::StrJoin(waiting, ", ")}});
      absl::StrAppend(&words, "; for the next start: ", absl::StrJoin(waiting, ", "));
    }
    return words;
  }

  std::vector<std::string> SilentThreads() override { return liveness_.Silent(); }

  std::string Summary() const override {
    const auto count = [](size_t n, const char* what) {
      return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
    };
    return absl::StrCat(count(sessions_->size(), "session"), ", ",
                        count(communicators_->size(), "communicator"));
  }

  std::chrono::nanoseconds grace_period() const override { return live_.grace_period; }

 private:
  absl::Status TakeSockets() {
    if (given_.grpc.fd() >= 0) return absl::OkStatus();  // whoever made them made the directory
    return WithSocketHint(MakeParent(config_.socket));
  }

  // The given one, or one that is made, as the configuration says.
  absl::StatusOr<UnixListener> Listener(UnixListener* given, const char* suffix) {
    if (given->fd() >= 0) return std::move(*given);
    UnixListener::Options options;
    options.type = *suffix == '\0' ? SocketType::kStream : SocketType::kSeqPacket;
    options.mode = config_.socket_mode;
    return UnixListener::Listen(config_.socket + suffix, options);
  }

  // Counting goes on without it: it costs nothing to speak of.
  absl::Status StartMetrics() {
    if (config_.metrics_address.empty()) return absl::OkStatus();
    metrics::Sources sources;
    sources.version = kVersion;
    sources.probe = &probe_;
    sources.sessions = sessions_.get();
    sources.regions = regions_.get();
    sources.communicators = communicators_.get();
    sources.stores = stores_.get();
    sources.transfers = transfers_.get();
    sources.store_tallies = &store_tallies_;
    if (config_.cluster.enabled()) {
      SHUNT_ASSIGN_OR_RETURN(const cluster::Address data, DataAddress());
      sources.links = &links_;
      sources.link_capacity = config_.metrics_link_capacity;
      sources.interface_capacity = metrics::InterfaceBytesPerSecond(data.host);
      sources.peers = [this] {
        return cluster_ == nullptr ? std::vector<cluster::PeerTable::Row>()
                                   : cluster_->PeersOnLoop();
      };
    }
    collector_ = std::make_shared<metrics::Collector>(std::move(sources));
    collector_->Watch("control", [this](auto question) { loop_->Post(std::move(question)); });
    if (engine_ != nullptr) {
      collector_->Watch("nodes", [this](auto question) { engine_->Post(std::move(question)); });
    }
    const auto at = config_.set_at.find("metrics.address");
    const std::string place = at == config_.set_at.end() ? "" : absl::StrCat(at->second, ": ");
    SHUNT_ASSIGN_OR_RETURN(
        exporter_, metrics::Exporter::Start(config_.metrics_address,
                                            absl::StrCat(place, "metrics.address"), collector_));
    LogInfo("metrics", {{"address", config_.metrics_address}, {"port", exporter_->port()}});
    return absl::OkStatus();
  }

  void WatchThreads() {
    liveness_.Add("shunt-control", [this](auto answer) { loop_->Post(std::move(answer)); });
    liveness_.Add("shunt-grpc", [this](auto answer) { grpc_->Post(std::move(answer)); });
    if (engine_ == nullptr) return;
    liveness_.Add("shunt-nodes", [this](auto answer) { engine_->Post(std::move(answer)); });
  }

  void Shutdown(std::chrono::nanoseconds grace) {
    stopped_ = true;
    exporter_.reset();  // it asks the loops
    LogInfo("stopping",
            {{"sessions", sessions_->size()}, {"communicators", communicators_->size()}});
    services_->BeginStop();
    communicators_->WithdrawAll("shuntd is stopping");
    const int64_t deadline = DeadlineAfterNs(grace);
    while (NowNs() < deadline && Busy()) std::this_thread::sleep_for(kStopPoll);
    communicators_->FailAll("shuntd is stopping");
    transfers_->CancelAll(absl::UnavailableError("shuntd is stopping"));
    // The workers tell everybody who waits, before the sessions go.
    const int64_t told = DeadlineAfterNs(kTellingMax);
    while (NowNs() < told && Pending()) std::this_thread::sleep_for(kStopPoll);
    for (const Services::SessionPtr& session : sessions_->List()) {
      services_->EndSession(session, /*died=*/false, "shuntd is stopping");
    }
    // Those that have nothing to do end at once. One whose file system or server does not answer
    // has what is left of the grace period, to leave nothing there.
    stores_->Stop(std::max(deadline, DeadlineAfterNs(kStoresMax)));
    // Who waits for other nodes hears of it while there is somebody to tell it.
    OnLoop([this] { remote_sections_->SetPeers(nullptr); });
    transfers_->Stop();  // it answers calls of gRPC's
    gpu_engine_->Stop();
    gpus_->Stop();  // and of the lease socket
    grpc_.reset();
    OnLoop([this] { lease_.reset(); });
    LeaveCluster();
    StopThreads();
    LogInfo("stopped", {{"operations_served", operations_.served.load()}});
  }

  // Without a budget the kernel places them better than we could.
  bool PlacesWorkers() const {
    return !config_.worker_cpus.empty() || !config_.numa_nodes.empty() ||
           topology_.numa_nodes.size() > 1;
  }

  int Movers() const {
    if (config_.cluster.movers >= 0) return static_cast<int>(config_.cluster.movers);
    const absl::StatusOr<topology::CpuList> cpus = CheckWorkerCpus(config_, topology_);
    return cpus.ok() ? transport::DefaultMovers(static_cast<int>(cpus->size())) : 0;
  }

  // What moves payload between this node and others.
  absl::Status MakeEngine() {
    const cluster::ClusterConfig& config = config_.cluster;
    transport::TcpOptions tcp;
    tcp.cluster = config.name;
    tcp.name = cluster::NodeName(config);
    SHUNT_ASSIGN_OR_RETURN(const cluster::Address data, DataAddress());
    tcp.incarnation = node_incarnation_;
    tcp.listen_address = data.host;
    tcp.listen_port = data.port;
    tcp.on_refused = RefusalLog();
    tcp.congestion = config.congestion;
    tcp.tallies = &links_;
    transport::UseMovers(&tcp, Movers());
    tcp.on_mover_start = [this] {
      ::pthread_setname_np(::pthread_self(), "shunt-mover");
      if (config_.worker_cpus.empty() && config_.numa_nodes.empty()) return;
      const absl::StatusOr<topology::CpuList> cpus = CheckWorkerCpus(config_, topology_);
      if (cpus.ok()) topology::BindThread(*cpus).IgnoreError();
    };
    NodeEngine::Options engine;
    engine.node = tcp.name;
    engine.incarnation = node_incarnation_;
    SHUNT_ASSIGN_OR_RETURN(engine.transport, MakeDataTransport(config, tcp));
    engine.lost = [this](const NodeKey& node, const std::string& why) {
      loop_->Post([this, node, why] {
        if (cluster_ != nullptr) cluster_->DataLost(node.name, node.incarnation, why);
      });
    };
    engine.wake = [this] { scheduler_.Nudge(); };
    engine.probe = &probe_;
    engine.links = &links_;
    engine.pool = &transfers_->pool();
    engine.resolve = [this](const std::string& node, pull::FlowId flow, const pull::Ask& ask,
                            std::vector<std::byte> array, pull::PullEngine::Resolved resolved) {
      transfers_->Resolve(node, flow, ask, std::move(array), std::move(resolved));
    };
    engine_ = std::make_unique<NodeEngine>(std::move(engine));
    transfers_->UseNodes(engine_.get());
    operations_.node = tcp.name;
    operations_.aggregator = config.role == cluster::Role::kAggregator;
    operations_.engine = engine_.get();
    return absl::OkStatus();
  }

  absl::StatusOr<cluster::Address> DataAddress() const {
    const cluster::ClusterConfig& config = config_.cluster;
    SHUNT_ASSIGN_OR_RETURN(
        cluster::Address data,
        cluster::ParseAddress(config.data_listen.empty() ? config.listen : config.data_listen,
                              /*port_zero=*/true));
    if (config.data_listen.empty()) data.port = 0;
    return data;
  }

  // The other nodes: their daemons over gRPC.
  absl::Status JoinCluster() {
    cluster::Cluster::Options options;
    options.config = config_.cluster;
    SHUNT_ASSIGN_OR_RETURN(const cluster::Address data, DataAddress());
    options.data_addresses = {cluster::FormatAddress({data.host, engine_->port()})};
    options.incarnation = node_incarnation_;
    options.version = kVersion;
    cluster::ClusterEvents events;
    events.peer_up = [this](const cluster::PeerInfo& peer) {
      for (const std::string& address : peer.data_addresses) {
        const auto place = cluster::ParseAddress(address, /*port_zero=*/false);
        if (!place.ok()) continue;
        engine_->Meet({peer.name, peer.incarnation}, place->host, place->port, peer.token_out,
                      peer.token_in);
        break;
      }
    };
    events.peer_lost = [this](const cluster::PeerInfo& peer, std::string_view why) {
      engine_->Forget({peer.name, peer.incarnation}, std::string(why));
    };
    events.renewed = [this](uint64_t incarnation, std::string_view) {
      engine_->Renew(incarnation);
    };
    events.link = [this] { return engine_->numbers(); };
    events.call_status = [this](uint64_t wire_id) { return communicators_->CallStatus(wire_id); };
    events.fetch_section = [this](const cluster::SectionQuery& query) {
      return transfers_->agents().Answer(query);
    };
    events.notify_agent = [this](const cluster::AgentNotice& notice) {
      return transfers_->agents().Deliver(notice);
    };
    events.open_span = [this](const cluster::CommunicatorMap& map,
                              std::function<void(absl::Status)> done) {
      OpenAggregation(map, std::move(done));
    };
    SHUNT_ASSIGN_OR_RETURN(
        std::unique_ptr<cluster::Cluster> cluster,
        cluster::Cluster::Start(std::move(options), std::move(events), loop_.get()));
    OnLoop([this, &cluster] {
      cluster_ = std::move(cluster);
      operations_.cluster = cluster_.get();
      remote_sections_->SetPeers(cluster_.get());
    });
    return absl::OkStatus();
  }

  // On the loop.
  void OpenAggregation(const cluster::CommunicatorMap& map,
                       std::function<void(absl::Status)> done) {
    std::vector<int32_t> labels;
    for (const cluster::MappedRank& rank : map.ranks) labels.push_back(rank.node);
    std::vector<NodeKey> nodes;
    for (const cluster::MappedNode& node : map.nodes)
      nodes.push_back({node.name, node.incarnation});
    absl::StatusOr<exchange::NodeMap> node_map = exchange::NodeMap::Make(labels);
    if (!node_map.ok()) return done(node_map.status());
    engine_->OpenAggregation(
        map.wire_id, *std::move(node_map), std::move(nodes),
        [this, done = std::move(done), wire_id = map.wire_id](const absl::Status& status) {
          loop_->Post([this, done, wire_id, status] {
            if (status.ok()) {
              loop_->At(DeadlineAfterNs(kUnusedMax),
                        [this, wire_id] { engine_->ExpireAggregation(wire_id); });
            }
            done(status);
          });
        });
  }

  void LeaveCluster() {
    std::unique_ptr<cluster::Cluster> cluster;
    OnLoop([this, &cluster] {
      operations_.cluster = nullptr;
      remote_sections_->SetPeers(nullptr);
      cluster = std::move(cluster_);
    });
    cluster.reset();
    if (engine_ != nullptr) engine_->Stop();
  }

  bool Pending() const {
    if (transfers_->in_flight() != 0) return true;
    for (const std::shared_ptr<Communicator>& communicator : communicators_->List()) {
      if (communicator->pending() != 0) return true;
    }
    return false;
  }

  bool Busy() const {
    if (transfers_->in_flight() != 0) return true;
    for (const std::shared_ptr<Communicator>& communicator : communicators_->List()) {
      if (communicator->pending() != 0 || communicator->LooksBusy()) return true;
    }
    return false;
  }

  // Runs `f` on the loop's thread and waits for it.
  void OnLoop(const std::function<void()>& f) {
    if (!loop_thread_.joinable()) return;
    std::mutex mutex;
    std::condition_variable cv;
    bool done = false;
    loop_->Post([&] {
      f();
      std::lock_guard lock(mutex);
      done = true;
      cv.notify_one();
    });
    std::unique_lock lock(mutex);
    cv.wait(lock, [&] { return done; });
  }

  void StopThreads() {
    scheduler_.Stop();
    if (loop_thread_.joinable()) {
      loop_->Stop();
      loop_thread_.join();
    }
  }

  const Config config_;  // as it started
  Config live_;          // with what was read again since; of the thread that calls Reload
  GivenSockets given_;
  Liveness liveness_;
  // What the parts below count in.
  Probe probe_;
  transport::LinkTallies links_;
  storage::StoreTallies store_tallies_;
  topology::Topology topology_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<memory::RegionTable> regions_;
  std::unique_ptr<SessionTable> sessions_;
  OperationHost operations_;
  Scheduler scheduler_;
  const uint64_t node_incarnation_ = RandomNumber();
  std::unique_ptr<NodeEngine> engine_;
  std::unique_ptr<CommunicatorTable> communicators_;
  std::unique_ptr<StoreRegions> stores_;
  std::unique_ptr<GpuWorkers> gpus_;
  std::unique_ptr<DeviceRegions> device_regions_;
  std::unique_ptr<GpuEngine> gpu_engine_;
  std::unique_ptr<TransferTable> transfers_;
  std::unique_ptr<RemoteSections> remote_sections_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<LeaseServer> lease_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<cluster::Cluster> cluster_;  // set and reset on the loop's thread
  std::shared_ptr<metrics::Collector> collector_;
  std::unique_ptr<metrics::Exporter> exporter_;
  std::thread loop_thread_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config, GivenSockets given) {
  SHUNT_RETURN_IF_ERROR(CheckConfig(config));
  SHUNT_RETURN_IF_ERROR(CheckStorage(config, PluginCheck::kStore));
  auto daemon = std::make_unique<DaemonImpl>(config, std::move(given));
  SHUNT_RETURN_IF_ERROR(daemon->Init());
  return daemon;
}

void PrepareProcess() {
  ::signal(SIGPIPE, SIG_IGN);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ::mallopt(M_ARENA_MAX, 2);
}

}  // namespace shunt::daemon
