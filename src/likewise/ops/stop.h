// A long kernel can be stopped: ops/cpu.py gives its thread a flag to check, and sets it on Ctrl-C.
#pragma once
#include <cstdint>

namespace likewise {

inline thread_local const volatile uint8_t* stop_flag = nullptr;

// Thrown by a kernel that has been asked to stop; module.cpp turns it into a KeyboardInterrupt.
struct Stopped {};

// Check the flag, about every few million cells.
inline void stop_if_asked() {
    if (stop_flag && *stop_flag) throw Stopped{};
}

}  // namespace likewise
