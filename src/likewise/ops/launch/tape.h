// Launches of GPU kernels, repeated on other tensors without Python in between. The driver's functions come as
// addresses, so that nothing of CUDA is needed to build this, and tests can stand in for the driver.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace likewise {

// cuLaunchKernel and cuEventRecord.
using LaunchKernel = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** parameters,
                             void** extra);
using RecordEvent = int (*)(void* event, void* stream);

class Tape {
public:
    static constexpr size_t most_parameters = 64;
    static constexpr size_t hidden = 8;  // null pointers behind a kernel's own: Triton adds two, a later one may add more

    Tape(LaunchKernel launch_kernel, RecordEvent record_event)
        : launch_kernel_(launch_kernel), record_event_(record_event) {}

    // A parameter is `values[k]` or, if `slots[k]` is not negative, the address given for that slot plus `values[k]`.
    // Integers of 32 bits are the low half of theirs.
    void add(void* function, std::vector<unsigned> grid, unsigned threads, unsigned shared, std::vector<int> slots,
             std::vector<int64_t> values) {
        if (grid.size() != 3 || slots.size() != values.size() || slots.size() + hidden > most_parameters)
            throw std::invalid_argument("a launch with three sizes and at most 56 parameters was expected");
        for (int slot : slots) slots_ = std::max(slots_, static_cast<size_t>(slot + 1));
        launches_.push_back({function, std::move(grid), threads, shared, std::move(slots), std::move(values)});
    }

    // Launch all, and record the event, if there is one, after the first. False if the driver refused the first launch:
    // then nothing has happened.
    bool run(void* stream, void* event, const std::vector<int64_t>& addresses) const {
        if (addresses.size() < slots_) throw std::invalid_argument("an address for every slot was expected");
        bool first = true;
        for (const Launch& launch : launches_) {
            int64_t values[most_parameters] = {};
            void* parameters[most_parameters];
            const size_t count = launch.values.size();
            for (size_t k = 0; k < count + hidden; ++k) {
                if (k < count) values[k] = launch.values[k] + (launch.slots[k] < 0 ? 0 : addresses[launch.slots[k]]);
                parameters[k] = &values[k];
            }
            const int error = launch_kernel_(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.threads,
                                             1, 1, launch.shared, stream, parameters, nullptr);
            if (error && first) return false;
            require(error);
            if (first && event) require(record_event_(event, stream));
            first = false;
        }
        return true;
    }

private:
    struct Launch {
        void* function;
        std::vector<unsigned> grid;
        unsigned threads, shared;
        std::vector<int> slots;
        std::vector<int64_t> values;
    };

    static void require(int error) {
        if (error) throw std::runtime_error("CUDA error " + std::to_string(error) + " in a launch that had worked before");
    }

    LaunchKernel launch_kernel_;
    RecordEvent record_event_;
    std::vector<Launch> launches_;
    size_t slots_ = 0;
};

}  // namespace likewise
