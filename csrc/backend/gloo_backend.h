// Where no MPI is viable: the same backend, with torch's Gloo as the transport of its messages.
//
// Everything above the Channel is what runs over MPI: checks, algorithms, reductions, deadlines, messages.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "backend/gloo_mesh.h"

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

  c10::intrusive_ptr<Backend> make_child(const GroupSettings& settings, c10::intrusive_ptr<AlOptions> options,
                                         const c10::intrusive_ptr<c10d::Store>& store) override;
  std::shared_ptr<Communicator> join(const GroupSettings& settings,
                                     const c10::intrusive_ptr<c10d::Store>& store) override;

 private:
  const GlooFactory factory_;
  const std::weak_ptr<GlooMesh> founded_;
};

// Collective over the group. `whole_job`: it has all ranks of the job, so that its ranks number them; a watch
// over their processes begins, and connections are made, which later groups use. Throws Error, and what the
// factory throws.
c10::intrusive_ptr<c10d::Backend> create_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupSettings& settings,
                                                      c10::intrusive_ptr<AlOptions> options, bool whole_job,
                                                      GlooFactory factory);

}  // namespace altorch::backend
