/* Lets user-mode Linux 6.1 restore registers on processors that have more of them than it knows (AMX).
 *
 * It keeps the first 2.6 KiB of a process's registers, which have all that its programs use. To write them back, Linux
 * takes the whole area only (arch/x86/kernel/fpu/regset.c, xstateregs_set), and user-mode Linux ends with SIGSEGV.
 * This library, for LD_PRELOAD, adds what is missing as the process has it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { AREA_MAX = 1 << 16, FEATURES_AT = 512 };
static const uint64_t AMX = (1ull << 17) | (1ull << 18);

long ptrace(enum __ptrace_request request, ...)
{
    static long (*original)(enum __ptrace_request, ...);
    static __thread char area[AREA_MAX] __attribute__((aligned(64)));
    va_list arguments;

    va_start(arguments, request);
    pid_t process = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!original)
        original = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE) {
        struct iovec *kept = data, whole = {area, sizeof(area)};
        if (original(PTRACE_GETREGSET, process, address, &whole) == 0 && whole.iov_len > kept->iov_len) {
            uint64_t features;
            memcpy(area, kept->iov_base, kept->iov_len);
            memcpy(&features, area + FEATURES_AT, sizeof(features));
            features &= ~AMX;
            memcpy(area + FEATURES_AT, &features, sizeof(features));
            return original(request, process, address, &whole);
        }
    }
    return original(request, process, address, data);
}
