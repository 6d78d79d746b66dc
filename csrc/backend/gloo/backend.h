// Where no MPI is viable: the same backend, with torch's Gloo as the transport of its messages.
//
// Everything above the Channel is what runs over MPI: checks, algorithms, reductions, deadlines, messages.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "backend/gloo/mesh.h"

namespace altorch::backend {

// Makes a ProcessGroupGloo for these ranks; collective. Only Python can, for want of Gloo's headers.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, double timeout_seconds)>;

class GlooBackend : public AlBackend {
 public:
  // `founded`: the mesh that this group has made for all that come after it, if it has.
  GlooBackend(GroupSettings settings, std::shared_ptr<Communicator> communicator,
              c10::intrusive_ptr<AlOptions> options, GlooFactory factory,
              const std::shared_ptr<GlooMesh>& founded = nullptr);
  ~GlooBackend() override;
  void shutdown() override;

  c10::intrusive_ptr<AlBackend> make_child(Rendezvous& group, c10::intrusive_ptr<AlOptions> options) override;
  std::shared_ptr<Communicator> join(Rendezvous& group) override;

 private:
  const GlooFactory factory_;
  const std::weak_ptr<GlooMesh> founded_;
};

// Collective over the group, right after its ranks have met: one that has all ranks of the job makes the
// connections that later groups use. Throws Error, and what the factory throws.
c10::intrusive_ptr<AlBackend> create_gloo_backend(Rendezvous& group, c10::intrusive_ptr<AlOptions> options,
                                                  GlooFactory factory);

}  // namespace altorch::backend
