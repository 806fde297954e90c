#include "daemon/admin_json.h"

#include <string>

namespace shunt::daemon {

Json ToJson(const v1::NodeStatus& m) {
  return Json::Object()
      .Add("name", m.name())
      .Add("address", m.address())
      .Add("role", m.role())
      .Add("state", m.state())
      .Add("why", m.why());
}

Json ToJson(const v1::MemberInfo& m) {
  return Json::Object()
      .Add("rank", m.rank())
      .Add("pid", m.pid())
      .Add("session_id", m.session_id())
      .Add("last_call", m.last_call());
}

Json ToJson(const v1::NumaNode& m) {
  return Json::Object()
      .Add("index", m.index())
      .Add("cpus", m.cpus())
      .Add("memory_bytes", m.memory_bytes());
}

Json ToJson(const v1::Nic& m) {
  return Json::Object()
      .Add("name", m.name())
      .Add("state", m.state())
      .Add("bits_per_second", m.bits_per_second())
      .Add("numa_node", m.numa_node())
      .Add("rdma_device", m.rdma_device())
      .Add("bytes_received", m.bytes_received())
      .Add("bytes_sent", m.bytes_sent());
}

Json ToJson(const v1::Gpu& m) {
  return Json::Object()
      .Add("pci_address", m.pci_address())
      .Add("name", m.name())
      .Add("numa_node", m.numa_node())
      .Add("driver", m.driver());
}

Json ToJson(const v1::GpuStatus& m) {
  return Json::Object()
      .Add("ordinal", m.ordinal())
      .Add("uuid", m.uuid())
      .Add("name", m.name())
      .Add("pci", m.pci())
      .Add("memory_bytes", m.memory_bytes())
      .Add("state", m.state())
      .Add("why", m.why())
      .Add("pid", m.pid())
      .Add("restarts", m.restarts())
      .Add("regions", m.regions())
      .Add("region_bytes", m.region_bytes())
      .Add("commands", m.commands());
}

Json ToJson(const v1::ExplainCandidate& m) {
  return Json::Object()
      .Add("algorithm", m.algorithm())
      .Add("seconds", m.seconds())
      .Add("chosen", m.chosen());
}

Json ToJson(const v1::LogEntry& m) {
  return Json::Object()
      .Add("unix_seconds", m.unix_seconds())
      .Add("level", m.level())
      .Add("line", m.line());
}

Json ToJson(const v1::ClusterStatus& m) {
  return Json::Object()
      .Add("name", m.name())
      .Add("node", m.node())
      .Add("address", m.address())
      .Add("membership_trouble", m.membership_trouble())
      .Add("nodes", ListToJson(m.nodes()));
}

Json ToJson(const v1::GetStatusResponse& m) {
  Json json = Json::Object();
  json.Add("version", m.version())
      .Add("incarnation", m.incarnation())
      .Add("pid", m.pid())
      .Add("uptime_seconds", m.uptime_seconds())
      .Add("sessions", m.sessions())
      .Add("communicators", m.communicators())
      .Add("regions", m.regions())
      .Add("region_bytes", m.region_bytes())
      .Add("memory_limit_bytes", m.memory_limit_bytes())
      .Add("worker_threads", m.worker_threads())
      .Add("worker_cpus", m.worker_cpus())
      .Add("operations_served", m.operations_served())
      .Add("operations_failed", m.operations_failed())
      .Add("stopping", m.stopping())
      .Add("state", m.state())
      .Add("drain_seconds_left", m.drain_seconds_left())
      .Add("drain_cut_off", m.drain_cut_off())
      .Add("communicators_busy", m.communicators_busy())
      .Add("transfers_in_flight", m.transfers_in_flight());
  if (m.gpus_size() != 0) json.Add("gpus", ListToJson(m.gpus()));
  if (m.has_cluster()) json.Add("cluster", ToJson(m.cluster()));
  return json;
}

Json ToJson(const v1::SessionInfo& m) {
  return Json::Object()
      .Add("session_id", m.session_id())
      .Add("name", m.name())
      .Add("pid", m.pid())
      .Add("uid", m.uid())
      .Add("age_seconds", m.age_seconds())
      .Add("regions", m.regions())
      .Add("region_bytes", m.region_bytes())
      .Add("communicators", m.communicators())
      .Add("operations_in_flight", m.operations_in_flight())
      .Add("attached", m.attached());
}

Json ToJson(const v1::CommunicatorInfo& m) {
  return Json::Object()
      .Add("communicator_id", m.communicator_id())
      .Add("name", m.name())
      .Add("job", m.job())
      .Add("uid", m.uid())
      .Add("epoch", m.epoch())
      .Add("world_size", m.world_size())
      .Add("state", m.state())
      .Add("failure", m.failure())
      .Add("members", ListToJson(m.members()));
}

Json ToJson(const v1::GetTopologyResponse& m) {
  return Json::Object()
      .Add("host", m.host())
      .Add("cpus", m.cpus())
      .Add("memory_bytes", m.memory_bytes())
      .Add("numa_nodes", ListToJson(m.numa_nodes()))
      .Add("nics", ListToJson(m.nics()))
      .Add("gpus", ListToJson(m.gpus()));
}

Json ToJson(const v1::Link& m) {
  return Json::Object()
      .Add("node", m.node().name())
      .Add("address", m.node().address())
      .Add("role", m.node().role())
      .Add("state", m.node().state())
      .Add("why", m.node().why())
      .Add("connected", m.connected())
      .Add("connection", m.connection())
      .Add("latency_ns", m.latency_ns())
      .Add("message_ns", m.message_ns())
      .Add("bytes_per_second", m.bytes_per_second())
      .Add("bytes_sent", m.bytes_sent())
      .Add("bytes_received", m.bytes_received())
      .Add("messages_sent", m.messages_sent())
      .Add("messages_received", m.messages_received())
      .Add("stalls", m.stalls())
      .Add("sent_bytes_per_second_now", m.sent_bytes_per_second_now())
      .Add("received_bytes_per_second_now", m.received_bytes_per_second_now());
}

Json ToJson(const v1::TransferInfo& m) {
  return Json::Object()
      .Add("session_id", m.session_id())
      .Add("transfer_id", m.transfer_id())
      .Add("uid", m.uid())
      .Add("agent", m.agent())
      .Add("other", m.other())
      .Add("route", m.route())
      .Add("class", m.service_class())
      .Add("bytes", m.bytes())
      .Add("bytes_done", m.bytes_done())
      .Add("age_seconds", m.age_seconds());
}

Json ToJson(const v1::ExplainResponse& m) {
  return Json::Object()
      .Add("communicator_id", m.communicator_id())
      .Add("epoch", m.epoch())
      .Add("world_size", m.world_size())
      .Add("nodes", m.nodes())
      .Add("latency_ns", m.latency_ns())
      .Add("message_ns", m.message_ns())
      .Add("bytes_per_second", m.bytes_per_second())
      .Add("version", m.version())
      .Add("deterministic", m.deterministic())
      .Add("algorithm", m.algorithm())
      .Add("slices", m.slices())
      .Add("candidates", ListToJson(m.candidates()));
}

Json ToJson(const v1::StatusPage& m) {
  return Json::Object()
      .Add("at_seconds", m.at_seconds())
      .Add("status", ToJson(m.status()))
      .Add("topology", ToJson(m.topology()))
      .Add("links", ListToJson(m.links()))
      .Add("sessions", ListToJson(m.sessions()))
      .Add("communicators", ListToJson(m.communicators()))
      .Add("transfers", ListToJson(m.transfers()))
      .Add("warnings", ListToJson(m.warnings()))
      .Add("sessions_total", m.sessions_total())
      .Add("communicators_total", m.communicators_total())
      .Add("transfers_total", m.transfers_total());
}

}  // namespace shunt::daemon
