// A long kernel can be stopped: ops/cpu.py gives its thread a flag to look at, and sets it on Ctrl-C.
#pragma once
#include <cstdint>

namespace likewise {

inline thread_local const volatile uint8_t* stop_flag = nullptr;

// What a kernel throws when it has been asked to stop; module.cpp makes it a KeyboardInterrupt.
struct Stopped {};

// Look at the flag, every few million cells or so.
inline void stop_if_asked() {
    if (stop_flag && *stop_flag) throw Stopped{};
}

}  // namespace likewise
