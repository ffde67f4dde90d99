/* A driver of GPUs that are not there, with the symbols of NVML that wattkeeper calls through pynvml.
 *
 * All it knows is in a file that WATTKEEPER_TEST_NVML names and that every process maps: what a test
 * writes there, all of them see. Time is the number `clock_s` in that file; nothing else moves it.
 * The structures are those of tests/support/nvml.py.
 */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

typedef struct {
    char uuid[80], name[80];
    double demand_w, ramp_w_per_s, energy_j, since_s, lost_at_s;
    uint32_t limit_mw, lowest_mw, highest_mw, default_mw;
    uint32_t may_set, counts_energy, tells_power, has_limits, mig, busy_percent, sets, others;
    uint32_t clocks, may_lock, lowest_lock_mhz, highest_lock_mhz, locks;
    uint32_t pids[8];
    double counter_s, before_w;  /* the counter is updated so often; 0: always */
} Gpu;

typedef struct {
    double clock_s;
    uint32_t gpus, init_error;
    Gpu gpu[8];
} State;

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned gpu, memory; } Utilisation;

static State *state;

static int lost(const Gpu *gpu) { return gpu->lost_at_s > 0 && state->clock_s >= gpu->lost_at_s; }

static double power_w(const Gpu *gpu) {
    double demand_w = gpu->demand_w + gpu->ramp_w_per_s * state->clock_s;
    return demand_w < gpu->limit_mw / 1e3 ? demand_w : gpu->limit_mw / 1e3;
}

static double energy_j(const Gpu *gpu) {  /* of GPUs without a ramp */
    return gpu->energy_j + power_w(gpu) * (state->clock_s - gpu->since_s);
}

int nvmlInitWithFlags(unsigned flags) {
    if (!state) {
        int file = open(getenv("WATTKEEPER_TEST_NVML"), O_RDWR);
        if (file < 0) return 9;
        state = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    return state->init_error;
}

int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code) { return "an error of the driver of the tests"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "999.01");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = state->gpus;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    if (index >= state->gpus) return INVALID;
    *gpu = &state->gpu[index];
    return lost(*gpu) ? LOST : OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
    for (unsigned at = 0; at < state->gpus; at++)
        if (!strcmp(state->gpu[at].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(at, gpu);
    return NOT_FOUND;
}

#define ALIVE(gpu) if (lost(gpu)) return LOST

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
    ALIVE(gpu);
    *index = (unsigned)(gpu - state->gpu);
    return OK;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *uuid, unsigned length) {
    ALIVE(gpu);
    snprintf(uuid, length, "%s", gpu->uuid);
    return OK;
}

int nvmlDeviceGetName(Gpu *gpu, char *name, unsigned length) {
    ALIVE(gpu);
    snprintf(name, length, "%s", gpu->name);
    return OK;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
    ALIVE(gpu);
    if (gpu->mig == 2) return NOT_SUPPORTED;
    *current = *pending = gpu->mig;
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *millijoules) {
    ALIVE(gpu);
    if (!gpu->counts_energy) return NOT_SUPPORTED;
    double missing_s = gpu->counter_s > 0 ? fmod(state->clock_s, gpu->counter_s) : 0;
    double here_s = state->clock_s - gpu->since_s;
    double at_j = energy_j(gpu) - power_w(gpu) * fmin(missing_s, here_s);
    at_j -= gpu->before_w * fmax(0, missing_s - here_s);
    *millijoules = (unsigned long long)(at_j * 1e3 + 0.5);
    return OK;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) {
    ALIVE(gpu);
    if (!gpu->tells_power) return NOT_SUPPORTED;
    *milliwatts = (unsigned)(power_w(gpu) * 1e3 + 0.5);
    return OK;
}

int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilisation *rates) {
    ALIVE(gpu);
    rates->gpu = gpu->busy_percent;
    rates->memory = 0;
    return OK;
}

int nvmlDeviceGetPowerManagementLimit(Gpu *gpu, unsigned *milliwatts) {
    ALIVE(gpu);
    if (!gpu->has_limits) return NOT_SUPPORTED;
    *milliwatts = gpu->limit_mw;
    return OK;
}

int nvmlDeviceGetPowerManagementLimitConstraints(Gpu *gpu, unsigned *lowest, unsigned *highest) {
    ALIVE(gpu);
    if (!gpu->has_limits) return NOT_SUPPORTED;
    *lowest = gpu->lowest_mw;
    *highest = gpu->highest_mw;
    return OK;
}

int nvmlDeviceGetPowerManagementDefaultLimit(Gpu *gpu, unsigned *milliwatts) {
    ALIVE(gpu);
    if (!gpu->has_limits) return NOT_SUPPORTED;
    *milliwatts = gpu->default_mw;
    return OK;
}

int nvmlDeviceSetPowerManagementLimit(Gpu *gpu, unsigned milliwatts) {
    ALIVE(gpu);
    if (!gpu->has_limits) return NOT_SUPPORTED;
    if (!gpu->may_set) return NO_PERMISSION;
    if (milliwatts < gpu->lowest_mw || milliwatts > gpu->highest_mw) return INVALID;
    gpu->energy_j = energy_j(gpu);
    gpu->before_w = power_w(gpu);
    gpu->since_s = state->clock_s;
    gpu->limit_mw = milliwatts;
    gpu->sets++;
    return OK;
}

/* Of 210 MHz and above in steps of 15 MHz, `clocks` graphics clocks, highest first, as the real one. */
int nvmlDeviceGetSupportedMemoryClocks(Gpu *gpu, unsigned *count, unsigned *clocks_mhz) {
    ALIVE(gpu);
    if (!gpu->clocks) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = 2;
    if (room < 2) return TOO_SMALL;
    clocks_mhz[0] = 1215, clocks_mhz[1] = 405;
    return OK;
}

int nvmlDeviceGetSupportedGraphicsClocks(Gpu *gpu, unsigned memory_mhz, unsigned *count, unsigned *clocks_mhz) {
    ALIVE(gpu);
    if (!gpu->clocks) return NOT_SUPPORTED;
    if (memory_mhz != 1215) return NOT_FOUND;
    unsigned room = *count;
    *count = gpu->clocks;
    if (room < gpu->clocks) return TOO_SMALL;
    for (unsigned at = 0; at < gpu->clocks; at++) clocks_mhz[at] = 210 + 15 * (gpu->clocks - 1 - at);
    return OK;
}

static int lock(Gpu *gpu, unsigned lowest_mhz, unsigned highest_mhz) {
    ALIVE(gpu);
    if (!gpu->clocks) return NOT_SUPPORTED;
    if (!gpu->may_lock) return NO_PERMISSION;
    gpu->lowest_lock_mhz = lowest_mhz;
    gpu->highest_lock_mhz = highest_mhz;
    gpu->locks++;
    return OK;
}

int nvmlDeviceSetGpuLockedClocks(Gpu *gpu, unsigned lowest_mhz, unsigned highest_mhz) {
    if (lowest_mhz > highest_mhz) return INVALID;
    return lock(gpu, lowest_mhz, highest_mhz);
}

int nvmlDeviceResetGpuLockedClocks(Gpu *gpu) { return lock(gpu, 0, 0); }

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *processes) {
    ALIVE(gpu);
    unsigned room = *count;
    *count = gpu->others;
    if (gpu->others > room) return TOO_SMALL;
    for (unsigned at = 0; at < gpu->others; at++) processes[at] = (Process){gpu->pids[at], 1 << 30, 0, 0};
    return OK;
}
