// The C interface's handles.
#pragma once

#include <memory>

#include "client/include/shunt.h"
#include "client/src/communicator.h"
#include "client/src/operation.h"
#include "client/src/session.h"

struct shunt_session {
  std::shared_ptr<shunt::client::Session> impl;
};

struct shunt_comm {
  std::shared_ptr<shunt::client::Communicator> impl;
};

struct shunt_op {
  explicit shunt_op(std::shared_ptr<shunt::client::Communicator> communicator)
      : impl(std::move(communicator)) {}
  shunt::client::AsyncOperation impl;
};
