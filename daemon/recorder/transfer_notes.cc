#include "daemon/recorder/transfer_notes.h"

namespace shunt::daemon {

TransferNote NoteOf(const Transfer& transfer) {
  const Transfer::Setup& setup = transfer.setup();
  TransferNote note;
  note.id = setup.id;
  note.session = setup.session->id;
  note.pid = setup.session->peer.pid;
  note.uid = setup.session->peer.uid;
  note.route = RouteName(setup.route);
  note.with = setup.with;
  note.node = setup.node;
  note.bytes = setup.bytes;
  note.posted_ns = transfer.posted_ns();
  note.began_ns = transfer.began_ns();
  note.ended_ns = transfer.ended_ns();
  note.outcome = transfer.report().outcome;
  return note;
}

}  // namespace shunt::daemon
