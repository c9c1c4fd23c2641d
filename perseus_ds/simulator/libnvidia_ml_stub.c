/* A libnvidia-ml.so.1 whose GPUs are the simulator's: for programs that load NVML themselves.
 *
 * It knows no physics: a Python process (serve.py) answers. PERSEUS_DS_SIMULATOR names the directory of the virtual
 * GPUs, PERSEUS_DS_PYTHON the interpreter (default: python3). Names and codes are those of nvml.h.
 * Build: cc -shared -fPIC -O2 -o libnvidia-ml.so.1 libnvidia_ml_stub.c -lpthread
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_CLOCKS = 256, MAX_GPUS = 64, MEMORY_CLOCK_MHZ = 1215 };
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9 };
enum { GPU_IS_LOST = 15 };

typedef struct {
    char name[64], uuid[64], pci_bus_id[32];
    unsigned mig, power_limit_mw, clock_count, clocks_mhz[MAX_CLOCKS];
} Gpu;

static Gpu gpus[MAX_GPUS];
static unsigned gpu_count;
static char driver_version[64];
static FILE *questions, *answers;
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;

/* ---- the process that answers ---- */

static void start_server(const char *directory) {
    const char *python = getenv("PERSEUS_DS_PYTHON");
    const char *program = "import sys; sys.path[:] = filter(None, sys.path); "
                          "from perseus_ds.simulator.serve import main; main()";
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return;
    if (fork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execlp(python ? python : "python3", "python3", "-c", program, directory, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    questions = fdopen(to[1], "w");
    answers = fdopen(from[0], "r");
}

static int read_line(char *text, size_t size) {
    if (!fgets(text, (int)size, answers)) return 0;
    text[strcspn(text, "\n")] = 0;
    return 1;
}

static int read_gpu(Gpu *gpu) {
    if (fscanf(answers, "%u %u %u", &gpu->mig, &gpu->power_limit_mw, &gpu->clock_count) != 3) return 0;
    for (unsigned i = 0; i < gpu->clock_count; i++)
        if (fscanf(answers, "%u", &gpu->clocks_mhz[i]) != 1) return 0;
    fgetc(answers);
    return read_line(gpu->name, sizeof gpu->name) && read_line(gpu->uuid, sizeof gpu->uuid) &&
           read_line(gpu->pci_bus_id, sizeof gpu->pci_bus_id);
}

static int ask(const char *function, const Gpu *gpu, unsigned first, unsigned second, unsigned long long *value) {
    unsigned long long ignored;
    int code = GPU_IS_LOST;
    pthread_mutex_lock(&threads);
    fprintf(questions, "%s %d %u %u\n", function, (int)(gpu - gpus), first, second);
    fflush(questions);
    if (fscanf(answers, "%d %llu", &code, value ? value : &ignored) != 2) code = GPU_IS_LOST;
    pthread_mutex_unlock(&threads);
    return code;
}

static int ask_unsigned(const char *function, const Gpu *gpu, unsigned first, unsigned *value) {
    unsigned long long wide = 0;
    int code = ask(function, gpu, first, 0, &wide);
    if (code == SUCCESS) *value = (unsigned)wide;
    return code;
}

/* ---- NVML's C functions ---- */

int nvmlInitWithFlags(unsigned flags) {
    const char *directory = getenv("PERSEUS_DS_SIMULATOR");
    unsigned count = 0;
    (void)flags;
    pthread_mutex_lock(&threads);
    if (!gpu_count && directory) {
        start_server(directory);
        if (answers && fscanf(answers, "%u %63s", &count, driver_version) == 2)
            while (gpu_count < count && gpu_count < MAX_GPUS && read_gpu(&gpus[gpu_count])) gpu_count++;
    }
    pthread_mutex_unlock(&threads);
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
    return gpu_count ? text(buffer, length, driver_version) : UNINITIALIZED;
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

int nvmlDeviceGetHandleByIndex(unsigned index, Gpu **handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **handle) {
    for (unsigned i = 0; i < gpu_count; i++)
        if (!strcmp(gpus[i].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Gpu **handle) {
    for (unsigned i = 0; i < gpu_count; i++)
        if (!strcasecmp(gpus[i].pci_bus_id, bus_id)) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    *index = (unsigned)(gpu - gpus);
    return SUCCESS;
}

int nvmlDeviceGetName(Gpu *gpu, char *buffer, unsigned length) { return text(buffer, length, gpu->name); }
int nvmlDeviceGetUUID(Gpu *gpu, char *buffer, unsigned length) { return text(buffer, length, gpu->uuid); }

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "%s", gpu->pci_bus_id);
    sscanf(info->busId, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    *current = *pending = gpu->mig;
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
    (void)memory_mhz;
    *count = gpu->clock_count;
    if (!clocks) return INSUFFICIENT_SIZE;
    memcpy(clocks, gpu->clocks_mhz, sizeof(unsigned) * gpu->clock_count);
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int kind, unsigned *mhz) {
    (void)kind;
    *mhz = gpu->clocks_mhz[0];
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *limit_mw) {
    *limit_mw = gpu->power_limit_mw;
    return SUCCESS;
}

int nvmlDeviceSetGpuLockedClocks(Gpu *gpu, unsigned minimum_mhz, unsigned maximum_mhz) {
    return ask("nvmlDeviceSetGpuLockedClocks", gpu, minimum_mhz, maximum_mhz, NULL);
}

int nvmlDeviceResetGpuLockedClocks(Gpu *gpu) { return ask("nvmlDeviceResetGpuLockedClocks", gpu, 0, 0, NULL); }

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *energy_mj) {
    return ask("nvmlDeviceGetTotalEnergyConsumption", gpu, 0, 0, energy_mj);
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *power_mw) {
    return ask_unsigned("nvmlDeviceGetPowerUsage", gpu, 0, power_mw);
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int kind, unsigned *mhz) {
    return ask_unsigned("nvmlDeviceGetClockInfo", gpu, (unsigned)kind, mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *reasons) {
    return ask("nvmlDeviceGetCurrentClocksEventReasons", gpu, 0, 0, reasons);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons);
}
