// The threads of the OpenMP runtime that PyTorch has loaded. After each of PyTorch's operations they wait for milliseconds
// by spinning: they start at once, while other threads would share the cores with them, and Python's wait for its lock.
#pragma once
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace likewise {

using Region = void (*)(void (*)(void*), void*, unsigned, unsigned);

// The runtime's function for a parallel region; null if none of this name is loaded. GCC's, LLVM's and Intel's have it.
// The thread sanitiser does not see the end of its regions.
inline Region find_region() {
#if defined(__SANITIZE_THREAD__)
    return nullptr;
#else
    static const Region found = reinterpret_cast<Region>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return found;
#endif
}

// body(0), ..., body(parts - 1), on so many threads, or on this one if there is no runtime. The first exception is thrown
// here.
template <class F> void on_team(int64_t parts, int64_t threads, const F& body) {
    struct Team {
        const F& body;
        const int64_t parts;
        std::atomic<int64_t> next{0};
        std::mutex mutex{};
        std::exception_ptr error{};
    } team{body, parts};
    const auto member = [](void* given) {
        Team& team = *static_cast<Team*>(given);
        try {
            for (int64_t part; (part = team.next++) < team.parts;) team.body(part);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(team.mutex);
            if (!team.error) team.error = std::current_exception();
        }
    };
    const Region region = threads > 1 && parts > 1 ? find_region() : nullptr;
    if (region) region(member, &team, unsigned(threads < parts ? threads : parts), 0);
    else member(&team);
    if (team.error) std::rethrow_exception(team.error);
}

}  // namespace likewise
