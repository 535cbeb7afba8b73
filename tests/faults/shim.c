/* Makes the n-th call of one kind fail; files and folders that are made are one kind. Loaded before the C library with LD_PRELOAD.

   Only regular files count, and only allocations of 32 KB or more: smaller ones fail in no program
   that runs on. fault_set(kind, n, error, stays) arms it, fault_count(kind) tells the calls since. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITE, CREATE, SYNC, RENAME, MAP, ALLOCATE, KINDS };
enum { LARGE = 32768 };

static volatile int armed = -1, left, failure, stays;
static volatile int count[KINDS];

void fault_set(int kind, int n, int error, int remains) {
    for (int i = 0; i < KINDS; i++) count[i] = 0;
    left = n, failure = error, stays = remains, armed = kind;
}

int fault_count(int kind) { return count[kind]; }

static int fails(int kind) {
    count[kind]++;
    if (armed != kind || left < 0) return 0;
    if (left > 0) { left--; return 0; }
    if (!stays) left = -1;
    errno = failure;
    return 1;
}

static int is_file(int fd) {
    struct stat status;
    int before = errno, yes = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    errno = before;
    return yes;
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    return is_file(fd) && fails(WRITE) ? -1 : real(fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return is_file(fd) && fails(WRITE) ? -1 : real(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return is_file(fd) && fails(WRITE) ? -1 : real(fd, data, n, at);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return fails(CREATE) ? -1 : real(path, mode);
}

/* A file that is made: python, Arrow and SQLite open it in these two ways. */
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        REAL(int, name, const char *, int, ...); \
        struct stat status; \
        int before = errno, is_new = flags & O_CREAT && lstat(path, &status); \
        errno = before; \
        return is_new && fails(CREATE) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int fsync(int fd) {
    REAL(int, fsync, int);
    return fails(SYNC) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return fails(SYNC) ? -1 : real(fd);
}

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    return fails(RENAME) ? -1 : real(old, new);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return fd >= 0 && is_file(fd) && fails(MAP) ? MAP_FAILED
                                                : real(at, n, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
    REAL(void *, mmap64, void *, size_t, int, int, int, off64_t);
    return fd >= 0 && is_file(fd) && fails(MAP) ? MAP_FAILED
                                                : real(at, n, protection, flags, fd, offset);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_memalign(size_t, size_t);

void *malloc(size_t n) { return n >= LARGE && fails(ALLOCATE) ? NULL : __libc_malloc(n); }

void *calloc(size_t m, size_t n) {
    return n && m >= LARGE / n && m * n >= LARGE && fails(ALLOCATE) ? NULL : __libc_calloc(m, n);
}

int posix_memalign(void **out, size_t alignment, size_t n) {
    if (n >= LARGE && fails(ALLOCATE)) return ENOMEM;
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : ENOMEM;
}
