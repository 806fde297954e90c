// What the recorder keeps of a transfer that ends.
#pragma once

#include "daemon/recorder/recorder.h"
#include "daemon/transfer/transfer.h"

namespace shunt::daemon {

// In `ended`, or after it.
TransferNote NoteOf(const Transfer& transfer);

}  // namespace shunt::daemon
