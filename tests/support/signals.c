/* Sends a signal at the n-th call that changes a file system; for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long calls, target;
static volatile int number, refuses_exchange;

/* From now on, count; send `signal` before call `at`, if it is above 0. */
void arm(long at, int signal, int refuse_exchange)
{
    calls = 0;
    target = at;
    number = signal;
    refuses_exchange = refuse_exchange;
}

long counted(void) { return calls; }

static void call(void)
{
    if (__sync_add_and_fetch(&calls, 1) == target)
        kill(getpid(), number);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define COUNTED(type, name, parameters, arguments) \
    type name parameters \
    { \
        static __typeof__(&name) next; \
        if (!next) \
            next = NEXT(name); \
        call(); \
        return next arguments; \
    }

COUNTED(int, mkdir, (const char *path, mode_t mode), (path, mode))
COUNTED(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
COUNTED(int, rmdir, (const char *path), (path))
COUNTED(int, unlink, (const char *path), (path))
COUNTED(int, unlinkat, (int at, const char *path, int flags), (at, path, flags))
COUNTED(int, rename, (const char *from, const char *to), (from, to))
COUNTED(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
COUNTED(int, link, (const char *from, const char *to), (from, to))
COUNTED(int, linkat, (int a, const char *from, int b, const char *to, int flags),
        (a, from, b, to, flags))
COUNTED(int, symlink, (const char *from, const char *to), (from, to))
COUNTED(int, ftruncate, (int file, off_t size), (file, size))
COUNTED(int, ftruncate64, (int file, off64_t size), (file, size))
COUNTED(int, flock, (int file, int operation), (file, operation))
COUNTED(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
COUNTED(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at),
        (file, data, size, at))
COUNTED(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at),
        (file, data, size, at))

/* Not done: no test sees what a power failure leaves, and storms would wait for the disk. */
int fsync(int file)
{
    (void)file;
    call();
    return 0;
}

int fdatasync(int file) { return fsync(file); }

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    call();
    if (flags && refuses_exchange) {
        errno = EINVAL;
        return -1;
    }
    return NEXT(renameat2)(a, from, b, to, flags);
}

#define OPENED(name, leading, before) \
    int name(leading const char *path, int flags, ...) \
    { \
        static int (*next)(leading const char *, int, ...); \
        va_list rest; \
        mode_t mode; \
        if (!next) \
            next = dlsym(RTLD_NEXT, #name); \
        if (!(flags & O_CREAT)) \
            return next(before path, flags); \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
        call(); \
        return next(before path, flags, mode); \
    }
#define NOTHING
#define AT int at,
#define COMMA at,

OPENED(open, NOTHING, NOTHING)
OPENED(open64, NOTHING, NOTHING)
OPENED(openat, AT, COMMA)
OPENED(openat64, AT, COMMA)
