/* A libnvidia-ml.so.1 whose GPUs are the simulator's: for programs that load NVML themselves.
 *
 * Shares state files and physics with state.py, physics.py and driver.py, function by function; the header's
 * size and version guard against drift, and tests compare the two. Names and codes are those of nvml.h.
 * Build: cc -shared -fPIC -O2 -o libnvidia-ml.so.1 libnvidia_ml_stub.c -lm -lpthread
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x50455253, VERSION = 2, MAX_CLOCKS = 256, MAX_CURVES = 512, MAX_PENDING = 16, MAX_GPUS = 64 };
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9 };
enum { SETTING = 1, READING = 2, THERMAL_SLOWDOWN = 0x40, MEMORY_CLOCK_MHZ = 1215 };

typedef struct {
    uint32_t magic, version, size;
    int32_t mig;
    char name[64], uuid[64], pci_bus_id[32], driver_version[32];
    double blocking_power_w, power_limit_w, switch_latency_s, switch_latency_spread;
    double counter_period_s, sampling_duty, noise;
    uint64_t seed;
    int32_t clock_count, reserved, clocks_mhz[MAX_CLOCKS];
} Constants;

typedef struct {
    double effective_s;
    int32_t clock, reserved;
} Pending;

typedef struct {
    double time_s, energy_j;
    int32_t clock, pending_count;
    Pending pending[MAX_PENDING];
    int32_t curve, locked;
    double remaining, slowdown, meter_s;
    int32_t meter_sampling, frozen;
    double meter_begin_s, meter_begin_j, meter_sample_j;
    uint64_t meter_periods;
    double counter_j, counter_offset_j, frozen_j;
    uint64_t requests, resets;
    int32_t fault_code, fault_scope, fault_calls, curve_count, curves_generation, reserved;
} Dynamic;

typedef struct {
    Constants constants;
    Dynamic dynamic;
    struct { int32_t stage, kind, chunk, backward_chunk; } keys[MAX_CURVES];
    double table[MAX_CURVES][MAX_CLOCKS][2];
} State;

typedef struct {
    int fd;
    State *state;
} Gpu;

static Gpu gpus[MAX_GPUS];
static unsigned gpu_count;
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER; /* flock keeps only processes apart */

/* ---- physics.py ---- */

static double uniform(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(uint64_t seed, uint64_t index) {
    return sqrt(-2.0 * log(uniform(seed, 2 * index))) * cos(2.0 * M_PI * uniform(seed, 2 * index + 1));
}

static double draw(const State *gpu, double *rate) {
    const Dynamic *d = &gpu->dynamic;
    double blocking_w = gpu->constants.blocking_power_w, time_s, slowed_s;
    *rate = 0.0;
    if (d->curve < 0 || d->remaining <= 0.0) return blocking_w;
    time_s = gpu->table[d->curve][d->clock][0];
    slowed_s = time_s * d->slowdown;
    *rate = 1.0 / slowed_s;
    return (gpu->table[d->curve][d->clock][1] + blocking_w * (slowed_s - time_s)) / slowed_s;
}

static void take_effect(Dynamic *d) {
    d->clock = d->pending[0].clock;
    memmove(d->pending, d->pending + 1, sizeof d->pending - sizeof d->pending[0]);
    d->pending_count--;
}

static void meter(const Constants *c, Dynamic *d) {
    if (d->meter_sampling) {
        d->meter_sample_j = d->energy_j;
        d->meter_sampling = 0;
        d->meter_s = d->meter_begin_s + c->counter_period_s;
        if (c->sampling_duty < 1.0) return;
    }
    double measured_j = (d->meter_sample_j - d->meter_begin_j) / c->sampling_duty;
    d->counter_j += fmax(0.0, measured_j * (1.0 + c->noise * normal(c->seed, d->meter_periods)));
    d->meter_periods++;
    d->meter_begin_s += c->counter_period_s;
    d->meter_begin_j = d->energy_j;
    d->meter_sampling = 1;
    d->meter_s = d->meter_begin_s + c->counter_period_s * c->sampling_duty;
}

static void advance(State *gpu, double now_s) {
    Dynamic *d = &gpu->dynamic;
    while (d->time_s < now_s) {
        double rate, power_w = draw(gpu, &rate), until_s = fmin(now_s, d->meter_s);
        if (d->pending_count) until_s = fmin(until_s, fmax(d->pending[0].effective_s, d->time_s));
        double work_end_s = rate > 0.0 ? d->time_s + d->remaining / rate : INFINITY;
        until_s = fmin(until_s, work_end_s);
        d->energy_j += power_w * (until_s - d->time_s);
        if (rate > 0.0) d->remaining = until_s >= work_end_s ? 0.0 : d->remaining - rate * (until_s - d->time_s);
        d->time_s = until_s;
        if (d->pending_count && d->pending[0].effective_s <= until_s) take_effect(d);
        if (until_s >= d->meter_s) meter(&gpu->constants, d);
    }
}

static void request_clock(const Constants *c, Dynamic *d, int clock) {
    d->requests++;
    double spread = c->switch_latency_spread * (2.0 * uniform(c->seed ^ 0x5057, d->requests) - 1.0);
    double effective_s = d->time_s + c->switch_latency_s * (1.0 + spread);
    if (d->pending_count) effective_s = fmax(effective_s, d->pending[d->pending_count - 1].effective_s);
    if (d->pending_count == MAX_PENDING) take_effect(d);
    if (effective_s <= d->time_s) {
        d->clock = clock;
        return;
    }
    d->pending[d->pending_count].effective_s = effective_s;
    d->pending[d->pending_count++].clock = clock;
}

/* ---- gpu.py: each call locks the GPU and brings it to the present ---- */

static Dynamic *lock(Gpu *gpu) {
    struct timespec now;
    pthread_mutex_lock(&threads);
    flock(gpu->fd, LOCK_EX);
    clock_gettime(CLOCK_MONOTONIC, &now);
    advance(gpu->state, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    return &gpu->state->dynamic;
}

static int unlock(Gpu *gpu, int result) {
    flock(gpu->fd, LOCK_UN);
    pthread_mutex_unlock(&threads);
    return result;
}

static int fault(Dynamic *d, int scope) {
    if (!d->fault_code || !(d->fault_scope & scope) || d->fault_calls == 0) return SUCCESS;
    if (d->fault_calls > 0) d->fault_calls--;
    return d->fault_code;
}

static int set_clock(Gpu *gpu, int mhz, int locked) {
    const Constants *c = &gpu->state->constants;
    Dynamic *d = lock(gpu);
    int code = fault(d, SETTING), clock = 0;
    if (code) return unlock(gpu, code);
    while (locked && clock < c->clock_count - 1 && c->clocks_mhz[clock] > mhz) clock++;
    d->locked = locked;
    d->resets += !locked;
    request_clock(c, d, clock);
    return unlock(gpu, SUCCESS);
}

static Gpu *open_gpu(const char *path) {
    struct stat status;
    Gpu *gpu = &gpus[gpu_count];
    gpu->fd = open(path, O_RDWR | O_CLOEXEC);
    if (gpu->fd < 0) return NULL;
    if (fstat(gpu->fd, &status) == 0 && status.st_size == (off_t)sizeof(State)) {
        gpu->state = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd, 0);
        const Constants *c = &gpu->state->constants;
        if (gpu->state != MAP_FAILED && c->magic == MAGIC && c->version == VERSION && c->size == sizeof(State))
            return gpu;
    }
    close(gpu->fd);
    return NULL;
}

/* ---- driver.py: NVML's C functions ---- */

int nvmlInitWithFlags(unsigned flags) {
    const char *directory = getenv("PERSEUS_DS_SIMULATOR");
    char path[4096];
    (void)flags;
    for (int index = 0; directory && gpu_count == (unsigned)index && index < MAX_GPUS; index++) {
        snprintf(path, sizeof path, "%s/gpu-%05d.state", directory, index);
        if (open_gpu(path)) gpu_count++;
    }
    return gpu_count ? SUCCESS : NOT_LOADED;
}

int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code ? "simulated NVML error" : "Success"; }

static int text(char *buffer, unsigned length, const char *value) {
    return (unsigned)snprintf(buffer, length, "%s", value) < length ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned length) {
    return gpu_count ? text(buffer, length, gpus[0].state->constants.driver_version) : UNINITIALIZED;
}

int nvmlSystemGetNVMLVersion(char *buffer, unsigned length) { return text(buffer, length, "simulated"); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = gpu_count;
    return SUCCESS;
}

int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **handle) {
    if (index >= gpu_count) return INVALID_ARGUMENT;
    *handle = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex(unsigned index, Gpu **handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **handle) {
    for (unsigned i = 0; i < gpu_count; i++)
        if (!strcmp(gpus[i].state->constants.uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Gpu **handle) {
    for (unsigned i = 0; i < gpu_count; i++)
        if (!strcasecmp(gpus[i].state->constants.pci_bus_id, bus_id)) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    *index = (unsigned)(gpu - gpus);
    return SUCCESS;
}

int nvmlDeviceGetName(Gpu *gpu, char *buffer, unsigned length) {
    return text(buffer, length, gpu->state->constants.name);
}

int nvmlDeviceGetUUID(Gpu *gpu, char *buffer, unsigned length) {
    return text(buffer, length, gpu->state->constants.uuid);
}

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "%s", gpu->state->constants.pci_bus_id);
    sscanf(info->busId, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    *current = *pending = (unsigned)gpu->state->constants.mig;
    return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(Gpu *gpu, unsigned *count, unsigned *clocks) {
    (void)gpu;
    *count = 1;
    if (!clocks) return INSUFFICIENT_SIZE;
    clocks[0] = MEMORY_CLOCK_MHZ;
    return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(Gpu *gpu, unsigned memory_mhz, unsigned *count, unsigned *clocks) {
    const Constants *c = &gpu->state->constants;
    (void)memory_mhz;
    *count = (unsigned)c->clock_count;
    if (!clocks) return INSUFFICIENT_SIZE;
    memcpy(clocks, c->clocks_mhz, sizeof(unsigned) * (size_t)c->clock_count);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int kind, unsigned *mhz) {
    (void)kind;
    *mhz = (unsigned)gpu->state->constants.clocks_mhz[0];
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *limit_mw) {
    *limit_mw = (unsigned)(gpu->state->constants.power_limit_w * 1000.0);
    return SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(Gpu *gpu, unsigned minimum_mhz, unsigned maximum_mhz) {
    return minimum_mhz > maximum_mhz ? INVALID_ARGUMENT : set_clock(gpu, (int)maximum_mhz, 1);
}

int nvmlDeviceResetGpuLockedClocks(Gpu *gpu) { return set_clock(gpu, 0, 0); }

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *energy_mj) {
    Dynamic *d = lock(gpu);
    int code = fault(d, READING);
    if (!code) *energy_mj = (unsigned long long)(1000.0 * (d->frozen ? d->frozen_j : d->counter_j - d->counter_offset_j));
    return unlock(gpu, code);
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *power_mw) {
    Dynamic *d = lock(gpu);
    int code = fault(d, READING);
    double rate;
    if (!code) *power_mw = (unsigned)(1000.0 * draw(gpu->state, &rate));
    return unlock(gpu, code);
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int kind, unsigned *mhz) {
    const Constants *c = &gpu->state->constants;
    Dynamic *d = lock(gpu);
    int code = fault(d, READING), clock = 0;
    (void)kind;
    while (clock < c->clock_count - 1 && c->clocks_mhz[clock] > c->clocks_mhz[d->clock] / d->slowdown) clock++;
    if (!code) *mhz = (unsigned)c->clocks_mhz[clock];
    return unlock(gpu, code);
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *reasons) {
    Dynamic *d = lock(gpu);
    int code = fault(d, READING);
    if (!code) *reasons = d->slowdown > 1.0 ? THERMAL_SLOWDOWN : 0;
    return unlock(gpu, code);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons);
}
