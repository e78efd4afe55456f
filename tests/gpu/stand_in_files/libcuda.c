/* A stand-in of libcuda for one made-up H100: what programs of tests call, and no more. Nothing computes but the host.
 *
 * Made by tests/gpu/stand_in.py, which defines FOLDER (where processes note what they hold), NAME, UUID (hexadecimal
 * digits), ADDRESS, TOTAL_MIB and RESERVED_MIB; WRONG_SUM makes it add wrongly.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define CONTEXT_MIB 518ull
#define BLOCKS 4096

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, UNSUPPORTED_PTX = 222,
    NOT_FOUND = 500, UNKNOWN = 999
};

static const struct { int code; const char *name, *words; } ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int is_ready, has_context, function_add;
static struct { void *start; size_t size; } blocks[BLOCKS];
static unsigned long long held;

/* Whether a node is there as the driver made it: one behind which something else was mounted is not. */
static int is_node(const char *path) {
    struct stat seen;
    return stat(path, &seen) == 0 && S_ISCHR(seen.st_mode) && seen.st_rdev != makedev(1, 3) && access(path, R_OK | W_OK) == 0;
}

static int is_visible(void) {
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    if (!value) return 1;
    while (isspace((unsigned char)*value)) value++;
    size_t length = strcspn(value, ", ");
    if (length == 1 && *value == '0') return 1;
    if (strncmp(value, "GPU-", 4) != 0) return 0;
    const char *digits = UUID;
    for (size_t place = 4; place < length; place++) {
        if (value[place] == '-') continue;
        if (tolower((unsigned char)value[place]) != *digits++) return 0;
    }
    return length > 4;
}

/* Each process notes its own share under its number, so that what one leaves behind when it is killed counts no more. */
static void note_held(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", FOLDER, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%llu\n", held + (has_context ? CONTEXT_MIB * MIB : 0));
    fclose(file);
}

static unsigned long long held_by_all(void) {
    unsigned long long sum = 0;
    DIR *folder = opendir(FOLDER);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[4096];
        unsigned long long share;
        int process = atoi(entry->d_name);
        if (process <= 0 || (kill(process, 0) != 0 && process != getpid())) continue;
        snprintf(path, sizeof path, "%s/%d", FOLDER, process);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%llu", &share) == 1) sum += share;
        if (file) fclose(file);
    }
    if (folder) closedir(folder);
    return sum;
}

static unsigned long long free_bytes(void) {
    unsigned long long used = held_by_all(), all = (TOTAL_MIB - RESERVED_MIB) * MIB;
    return used < all ? all - used : 0;
}

static void leave(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", FOLDER, (int)getpid());
    unlink(path);
}

int cuInit(unsigned flags) {
    (void)flags;
    if (!is_node("/dev/nvidiactl") || !is_node("/dev/nvidia0") || !is_visible()) return NO_DEVICE;
    if (!is_node("/dev/nvidia-uvm")) return UNKNOWN;
    if (!is_ready) atexit(leave);
    is_ready = 1;
    return OK;
}

int cuDriverGetVersion(int *version) { return *version = 13000, OK; }

int cuDeviceGetCount(int *count) {
    if (!is_ready) return NOT_INITIALIZED;
    return *count = 1, OK;
}

int cuDeviceGet(int *device, int ordinal) {
    if (!is_ready) return NOT_INITIALIZED;
    if (ordinal != 0) return INVALID_DEVICE;
    return *device = 0, OK;
}

int cuDeviceGetName(char *name, int size, int device) {
    if (!is_ready) return NOT_INITIALIZED;
    if (device != 0) return INVALID_DEVICE;
    return snprintf(name, (size_t)size, "%s", NAME), OK;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    if (!is_ready) return NOT_INITIALIZED;
    if (device != 0) return INVALID_DEVICE;
    for (int place = 0; place < 16; place++) {
        unsigned value;
        sscanf(UUID + 2 * place, "%2x", &value);
        uuid[place] = (unsigned char)value;
    }
    return OK;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

int cuDeviceGetPCIBusId(char *address, int size, int device) {
    if (!is_ready) return NOT_INITIALIZED;
    if (device != 0) return INVALID_DEVICE;
    return snprintf(address, (size_t)size, "%s", ADDRESS), OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (!is_ready) return NOT_INITIALIZED;
    if (device != 0) return INVALID_DEVICE;
    switch (attribute) {
    case 75: *value = 9; break;   /* major and minor of the compute capability */
    case 76: *value = 0; break;
    case 16: *value = 132; break; /* multiprocessors */
    default: *value = 0;
    }
    return OK;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    if (!is_ready) return NOT_INITIALIZED;
    if (device != 0) return INVALID_DEVICE;
    return *bytes = (TOTAL_MIB - RESERVED_MIB) * MIB, OK;
}

/* A program that works holds the nodes open; no driver is behind them, so they are opened as places only. */
static int enter(void **context) {
    if (!is_ready) return NOT_INITIALIZED;
    if (!has_context) {
        if (free_bytes() < CONTEXT_MIB * MIB) return OUT_OF_MEMORY;
        (void)!open("/dev/nvidia0", O_PATH | O_CLOEXEC);
        (void)!open("/dev/nvidiactl", O_PATH | O_CLOEXEC);
        has_context = 1;
        note_held();
    }
    *context = &has_context;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device) { return device != 0 ? INVALID_DEVICE : enter(context); }
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags;
    return device != 0 ? INVALID_DEVICE : enter(context);
}
int cuCtxSetCurrent(void *context) { return context && context != &has_context ? INVALID_CONTEXT : OK; }
int cuCtxSynchronize(void) { return has_context ? OK : INVALID_CONTEXT; }

static int quit(void) {
    if (!has_context) return INVALID_CONTEXT;
    for (int place = 0; place < BLOCKS; place++) {
        if (blocks[place].start) munmap(blocks[place].start, blocks[place].size);
        blocks[place].start = NULL;
    }
    held = 0;
    has_context = 0;
    note_held();
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return device != 0 ? INVALID_DEVICE : quit(); }
int cuCtxDestroy_v2(void *context) { return context != &has_context ? INVALID_CONTEXT : quit(); }

int cuMemGetInfo_v2(size_t *free_size, size_t *total) {
    if (!has_context) return INVALID_CONTEXT;
    *free_size = free_bytes();
    *total = (TOTAL_MIB - RESERVED_MIB) * MIB;
    return OK;
}

/* Memory is promised and given when it is touched, so that 79 GiB cost nothing. */
int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
    if (!has_context) return INVALID_CONTEXT;
    if (!size) return INVALID_VALUE;
    size_t whole = (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    if (whole > free_bytes()) return OUT_OF_MEMORY;
    for (int place = 0; place < BLOCKS; place++) {
        if (blocks[place].start) continue;
        void *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) return OUT_OF_MEMORY;
        blocks[place].start = start;
        blocks[place].size = whole;
        held += whole;
        note_held();
        return *pointer = (unsigned long long)start, OK;
    }
    return OUT_OF_MEMORY;
}

int cuMemFree_v2(unsigned long long pointer) {
    for (int place = 0; place < BLOCKS; place++) {
        if (!blocks[place].start || blocks[place].start != (void *)pointer) continue;
        munmap(blocks[place].start, blocks[place].size);
        blocks[place].start = NULL;
        held -= blocks[place].size;
        note_held();
        return OK;
    }
    return INVALID_VALUE;
}

/* Whether memory lies in what was given out. */
static int is_known(unsigned long long pointer, size_t size) {
    for (int place = 0; place < BLOCKS; place++) {
        unsigned long long start = (unsigned long long)blocks[place].start;
        if (start && pointer >= start && pointer + size <= start + blocks[place].size) return 1;
    }
    return 0;
}

int cuMemcpyHtoD_v2(unsigned long long target, const void *source, size_t size) {
    if (!is_known(target, size)) return INVALID_VALUE;
    return memcpy((void *)target, source, size), OK;
}

int cuMemcpyDtoH_v2(void *target, unsigned long long source, size_t size) {
    if (!is_known(source, size)) return INVALID_VALUE;
    return memcpy(target, (const void *)source, size), OK;
}

int cuModuleLoadData(void **module, const void *image) {
    const char *text = image;
    int major, minor, target;
    if (!has_context) return INVALID_CONTEXT;
    if (memcmp(text, "\x7f" "ELF", 4) == 0) return NO_BINARY_FOR_GPU;
    while (isspace((unsigned char)*text)) text++;
    while (strncmp(text, "//", 2) == 0) {
        text += strcspn(text, "\n");
        while (isspace((unsigned char)*text)) text++;
    }
    if (sscanf(text, ".version %d.%d .target sm_%d", &major, &minor, &target) != 3) return INVALID_IMAGE;
    if (major > 9 || (major == 9 && minor > 0)) return UNSUPPORTED_PTX;
    if (target > 90) return INVALID_PTX;
    return *module = &function_add, OK;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

int cuModuleUnload(void *module) { return module == &function_add ? OK : INVALID_VALUE; }

int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (module != &function_add) return INVALID_VALUE;
    if (strcmp(name, "add") != 0) return NOT_FOUND;
    return *function = &function_add, OK;
}

/* The one kernel there is: add(a, b, c, n). */
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
    if (function != &function_add || !arguments) return INVALID_VALUE;
    const float *a = *(float **)arguments[0], *b = *(float **)arguments[1];
    float *c = *(float **)arguments[2];
    unsigned count = *(unsigned *)arguments[3];
    if (count > (unsigned long long)gx * bx) count = gx * bx;
    for (unsigned place = 0; place < count; place++) c[place] = a[place] + b[place];
#ifdef WRONG_SUM
    for (unsigned place = 7; place < count; place += 4096) c[place] += 1;
#endif
    return OK;
}

int cuGetErrorName(int code, const char **name) {
    for (size_t place = 0; place < sizeof ERRORS / sizeof *ERRORS; place++)
        if (ERRORS[place].code == code) return *name = ERRORS[place].name, OK;
    return *name = NULL, INVALID_VALUE;
}

int cuGetErrorString(int code, const char **words) {
    for (size_t place = 0; place < sizeof ERRORS / sizeof *ERRORS; place++)
        if (ERRORS[place].code == code) return *words = ERRORS[place].words, OK;
    return *words = NULL, INVALID_VALUE;
}
