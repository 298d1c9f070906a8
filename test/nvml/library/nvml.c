// SPDX-License-Identifier: Apache-2.0

// A stand-in for NVIDIA's libnvidia-ml.so.1 that reads the machine from a text file: what the device plugin, go-nvlib and
// nvcdi call, with the prototypes and structures of NVIDIA's own header (nvml.h of go-nvml) and no more.
//
// NVML_STAND_IN names the file; package nvml (nvml.go) writes it and says what its lines are. It is read at nvmlInit and
// again whenever it has changed, so that a test can take a GPU or the whole driver away. NVML_STAND_IN_EVENTS names a FIFO;
// every line written to it is one event, or one failure, of nvmlEventSetWait.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

enum { GPUS = 64, SLOTS = 8, LINKS = 18, TEXT = 96 };

struct link {
	int state; // 0: no link, 1: to a GPU, 2: to an NVSwitch
	char bus[TEXT];
};

struct gpu {
	int present, minor, mig, recovery;
	nvmlReturn_t state; // what calls about this GPU return
	nvmlReturn_t deaf;  // what registering for its events returns
	unsigned long long memory; // MiB
	char uuid[TEXT], bus[TEXT], name[TEXT];
	struct link links[LINKS];
};

struct slice {
	int present;
	unsigned int gi, ci, gi_profile, ci_profile;
	unsigned long long memory; // MiB
	char uuid[TEXT];
};

struct set {
	int fifo;
	unsigned long long mask[GPUS];
	size_t held;
	char text[4096];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int users;
static nvmlReturn_t broken; // what every call returns
static char driver[TEXT];
static struct gpu gpus[GPUS];
static struct slice slices[GPUS][SLOTS];
static int near[GPUS][GPUS]; // nvmlGpuTopologyLevel_t of two GPUs
static char trace[4096];
static int uncounted;
static struct timespec read_at;
static ino_t read_from;

static void read_line(const char *line) {
	char bus[TEXT], uuid[TEXT];
	struct gpu g = {.present = 1};
	struct slice s = {.present = 1};
	unsigned int index, slot;
	int state, count, name = 0;
	if (sscanf(line, "driver %95s", driver) == 1) return;
	if (sscanf(line, "trace %4095s", trace) == 1) return;
	if (sscanf(line, "error %d", &state) == 1) { broken = state; return; }
	if (sscanf(line, "uncounted %d", &uncounted) == 1) return;
	if (sscanf(line, "gpu %u %95s %95s %d %llu %d %d %d %n", &index, g.uuid, g.bus, &g.minor, &g.memory, &g.mig, &state, &g.recovery, &name) == 8 && index < GPUS) {
		g.state = state;
		snprintf(g.name, sizeof g.name, "%s", line + name);
		g.name[strcspn(g.name, "\n")] = 0;
		gpus[index] = g;
		return;
	}
	if (sscanf(line, "near %u %u %d", &index, &slot, &state) == 3 && index < GPUS && slot < GPUS) {
		near[index][slot] = near[slot][index] = state;
		return;
	}
	if (sscanf(line, "deaf %u %d", &index, &state) == 2 && index < GPUS) { gpus[index].deaf = state; return; }
	if (sscanf(line, "link %u %95s %d", &index, bus, &count) == 3 && index < GPUS) {
		for (int l = 0; l < LINKS && count > 0; l++) {
			struct link *link = &gpus[index].links[l];
			if (link->state) continue;
			link->state = strcmp(bus, "switch") == 0 ? 2 : 1;
			snprintf(link->bus, sizeof link->bus, "%s", bus);
			count--;
		}
		return;
	}
	if (sscanf(line, "mig %u %u %95s %u %u %u %u %llu", &index, &slot, uuid, &s.gi, &s.ci, &s.gi_profile, &s.ci_profile, &s.memory) == 8 && index < GPUS && slot < SLOTS) {
		memcpy(s.uuid, uuid, sizeof s.uuid);
		slices[index][slot] = s;
	}
}

// refresh reads the machine when its file is not the one read last.
static void refresh(void) {
	const char *path = getenv("NVML_STAND_IN");
	struct stat info;
	char line[4096];
	FILE *file;
	if (!path || stat(path, &info) || !(file = fopen(path, "r"))) {
		broken = NVML_ERROR_DRIVER_NOT_LOADED;
		return;
	}
	if (info.st_ino != read_from || info.st_mtim.tv_sec != read_at.tv_sec || info.st_mtim.tv_nsec != read_at.tv_nsec) {
		read_from = info.st_ino;
		read_at = info.st_mtim;
		broken = NVML_SUCCESS;
		trace[0] = 0;
		uncounted = 0;
		memset(gpus, 0, sizeof gpus);
		memset(slices, 0, sizeof slices);
		memset(near, 0, sizeof near);
		while (fgets(line, sizeof line, file)) read_line(line);
	}
	fclose(file);
}

static void note(const char *function) {
	int file = trace[0] ? open(trace, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
	if (file < 0) return;
	dprintf(file, "%s\n", function);
	close(file);
}

// begin is how every call starts: it takes the mutex, which done gives back.
static nvmlReturn_t begin(const char *function) {
	pthread_mutex_lock(&mutex);
	if (!users) return NVML_ERROR_UNINITIALIZED;
	refresh();
	note(function);
	return broken;
}

static nvmlReturn_t done(nvmlReturn_t result) {
	pthread_mutex_unlock(&mutex);
	return result;
}

static int index_of(nvmlDevice_t device) {
	struct gpu *g = (struct gpu *)device.handle;
	return g >= gpus && g < gpus + GPUS ? (int)(g - gpus) : -1;
}

static struct slice *slice_of(const void *handle) {
	struct slice *s = (struct slice *)handle;
	return s >= &slices[0][0] && s < &slices[0][0] + GPUS * SLOTS ? s : NULL;
}

static int parent_of(const struct slice *s) { return (int)((s - &slices[0][0]) / SLOTS); }

// The calls. CALL begins one about nothing in particular, GPU one about a whole GPU, SLICE one about a MIG device.
#define CALL                                              \
	nvmlReturn_t result = begin(__func__);            \
	if (result != NVML_SUCCESS) return done(result)
#define ALIVE(i) \
	if (gpus[i].state != NVML_SUCCESS) return done(gpus[i].state)
#define GPU                                                          \
	CALL;                                                        \
	int index = index_of(device);                                \
	if (index < 0) return done(NVML_ERROR_INVALID_ARGUMENT);     \
	ALIVE(index);                                                \
	struct gpu *gpu = &gpus[index]
#define SLICE(of)                                                            \
	CALL;                                                                    \
	struct slice *slice = slice_of(of.handle);                                    \
	if (!slice || !slice->present) return done(NVML_ERROR_INVALID_ARGUMENT); \
	ALIVE(parent_of(slice))

nvmlReturn_t nvmlInit_v2(void) {
	pthread_mutex_lock(&mutex);
	refresh();
	note(__func__);
	if (broken == NVML_SUCCESS) users++;
	return done(broken);
}

nvmlReturn_t nvmlShutdown(void) {
	pthread_mutex_lock(&mutex);
	if (!users) return done(NVML_ERROR_UNINITIALIZED);
	users--;
	return done(NVML_SUCCESS);
}

const char *nvmlErrorString(nvmlReturn_t result) {
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
	CALL;
	snprintf(version, length, "%s", driver);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	CALL;
	if (uncounted > 0) {
		uncounted--;
		return done(NVML_ERROR_UNKNOWN);
	}
	for (*count = 0; *count < GPUS && gpus[*count].present; (*count)++) {}
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *device) {
	CALL;
	if (i >= GPUS || !gpus[i].present) return done(NVML_ERROR_INVALID_ARGUMENT);
	ALIVE(i);
	*device = (nvmlDevice_t){(void *)&gpus[i]};
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
	CALL;
	for (int i = 0; i < GPUS; i++) {
		if (gpus[i].present && strcmp(gpus[i].uuid, uuid) == 0) {
			ALIVE(i);
			*device = (nvmlDevice_t){(void *)&gpus[i]};
			return done(NVML_SUCCESS);
		}
		for (int j = 0; j < SLOTS; j++) {
			if (!slices[i][j].present || strcmp(slices[i][j].uuid, uuid) != 0) continue;
			ALIVE(i);
			*device = (nvmlDevice_t){(void *)&slices[i][j]};
			return done(NVML_SUCCESS);
		}
	}
	return done(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	CALL;
	struct slice *s = slice_of(device.handle);
	int i = s ? parent_of(s) : index_of(device);
	if (i < 0) return done(NVML_ERROR_INVALID_ARGUMENT);
	ALIVE(i);
	snprintf(uuid, length, "%s", s ? s->uuid : gpus[i].uuid);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	GPU;
	snprintf(name, length, "%s", gpu->name);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *number) {
	CALL;
	struct slice *s = slice_of(device.handle);
	if (s) {
		*number = (unsigned int)((s - &slices[0][0]) % SLOTS);
		return done(NVML_SUCCESS);
	}
	if (index_of(device) < 0) return done(NVML_ERROR_INVALID_ARGUMENT);
	*number = (unsigned int)index_of(device);
	return done(NVML_SUCCESS);
}

static void fill_pci(nvmlPciInfo_t *pci, const char *bus) {
	memset(pci, 0, sizeof *pci);
	sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	snprintf(pci->busId, sizeof pci->busId, "%s", bus);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.15s", bus + 4);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	GPU;
	fill_pci(pci, gpu->bus);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
	GPU;
	int peer = index_of(other);
	if (peer < 0) return done(NVML_ERROR_INVALID_ARGUMENT);
	*level = near[gpu - gpus][peer];
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
	GPU;
	*minor = (unsigned int)gpu->minor;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	CALL;
	struct slice *s = slice_of(device.handle);
	int i = s ? parent_of(s) : index_of(device);
	if (i < 0) return done(NVML_ERROR_INVALID_ARGUMENT);
	ALIVE(i);
	memory->total = (s ? s->memory : gpus[i].memory) << 20;
	memory->used = 0;
	memory->free = memory->total;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	GPU;
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || gpu->recovery < 0) continue;
		values[i].nvmlReturn = NVML_SUCCESS;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = (unsigned int)gpu->recovery;
	}
	return done(NVML_SUCCESS);
}

// NVLink.

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
	GPU;
	if (link >= LINKS) return done(NVML_ERROR_INVALID_ARGUMENT);
	if (!gpu->links[0].state) return done(NVML_ERROR_NOT_SUPPORTED);
	*active = gpu->links[link].state ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type) {
	GPU;
	if (link >= LINKS || !gpu->links[link].state) return done(NVML_ERROR_INVALID_ARGUMENT);
	*type = gpu->links[link].state == 2 ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
	GPU;
	if (link >= LINKS || !gpu->links[link].state) return done(NVML_ERROR_INVALID_ARGUMENT);
	fill_pci(pci, gpu->links[link].state == 1 ? gpu->links[link].bus : "00000000:00:00.0");
	return done(NVML_SUCCESS);
}

// MIG.

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	GPU;
	if (gpu->mig < 0) return done(NVML_ERROR_NOT_SUPPORTED);
	*current = *pending = (unsigned int)gpu->mig;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	GPU;
	*count = gpu->mig < 0 ? 0 : SLOTS;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int slot, nvmlDevice_t *mig) {
	GPU;
	if (slot >= SLOTS || gpu->mig < 0) return done(NVML_ERROR_INVALID_ARGUMENT);
	if (!slices[index][slot].present) return done(NVML_ERROR_NOT_FOUND);
	*mig = (nvmlDevice_t){(void *)&slices[index][slot]};
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
	CALL;
	*is = slice_of(device.handle) != NULL;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
	SLICE(mig);
	*device = (nvmlDevice_t){(void *)&gpus[parent_of(slice)]};
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
	SLICE(device);
	*id = slice->gi;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
	SLICE(device);
	*id = slice->ci;
	return done(NVML_SUCCESS);
}

static unsigned int size_of(unsigned int profile) { // in slices, of the profiles whose number and size differ
	static const unsigned int sizes[] = {1, 2, 3, 4, 7, 8, 6, 1, 2, 1, 1, 2, 4, 1, 2, 1, 2, 3};
	return profile < sizeof sizes / sizeof *sizes ? sizes[profile] : 0;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
	SLICE(device);
	memset(attributes, 0, sizeof *attributes);
	attributes->gpuInstanceSliceCount = size_of(slice->gi_profile);
	attributes->computeInstanceSliceCount = size_of(slice->ci_profile);
	attributes->memorySizeMB = slice->memory;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *info) {
	GPU;
	if (gpu->mig < 0) return done(NVML_ERROR_NOT_SUPPORTED);
	memset(info, 0, sizeof *info);
	info->id = profile + 1;
	info->sliceCount = size_of(profile);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
	GPU;
	(void)gpu;
	for (int j = 0; j < SLOTS; j++) {
		if (!slices[index][j].present || slices[index][j].gi != id) continue;
		*instance = (nvmlGpuInstance_t){(void *)&slices[index][j]};
		return done(NVML_SUCCESS);
	}
	return done(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
	SLICE(instance);
	memset(info, 0, sizeof *info);
	info->device = (nvmlDevice_t){(void *)&gpus[parent_of(slice)]};
	info->id = slice->gi;
	info->profileId = slice->gi_profile + 1;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *compute) {
	SLICE(instance);
	for (int j = 0; j < SLOTS; j++) {
		struct slice *s = &slices[parent_of(slice)][j];
		if (!s->present || s->gi != slice->gi || s->ci != id) continue;
		*compute = (nvmlComputeInstance_t){(void *)s};
		return done(NVML_SUCCESS);
	}
	return done(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine, nvmlComputeInstanceProfileInfo_t *info) {
	SLICE(instance);
	if (engine != 0) return done(NVML_ERROR_NOT_SUPPORTED);
	memset(info, 0, sizeof *info);
	info->id = profile + 1;
	info->sliceCount = size_of(profile);
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
	SLICE(compute);
	memset(info, 0, sizeof *info);
	info->device = (nvmlDevice_t){(void *)&gpus[parent_of(slice)]};
	info->id = slice->ci;
	info->profileId = slice->ci_profile + 1;
	return done(NVML_SUCCESS);
}

// Events.

static const unsigned long long supported = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError |
	nvmlEventTypeSingleBitEccError | nvmlEventMigConfigChange | nvmlEventTypeGpuRecoveryAction;

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	CALL;
	const char *path = getenv("NVML_STAND_IN_EVENTS");
	struct set *s = calloc(1, sizeof *s);
	if (!s) return done(NVML_ERROR_MEMORY);
	s->fifo = path ? open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
	*set = (nvmlEventSet_t){(void *)s};
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	struct set *s = (struct set *)set.handle;
	if (s->fifo >= 0) close(s->fifo);
	free(s);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	GPU;
	(void)gpu;
	*types = supported;
	return done(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	GPU;
	if (gpu->deaf != NVML_SUCCESS) return done(gpu->deaf);
	if (types & ~supported) return done(NVML_ERROR_NOT_SUPPORTED);
	((struct set *)set.handle)->mask[index] |= types;
	return done(NVML_SUCCESS);
}

// next takes one line from what was read. It returns 0 where there is no event for this set in it.
static int next(struct set *s, nvmlEventData_t *data, nvmlReturn_t *result) {
	char line[sizeof s->text], uuid[TEXT];
	char *end = memchr(s->text, '\n', s->held);
	if (!end) return 0;
	size_t length = (size_t)(end - s->text) + 1;
	memcpy(line, s->text, length);
	line[length - 1] = 0;
	memmove(s->text, end + 1, s->held - length);
	s->held -= length;
	int error;
	if (sscanf(line, "error %d", &error) == 1) {
		*result = error;
		return 1;
	}
	memset(data, 0, sizeof *data);
	if (sscanf(line, "event %95s %llu %llu %u %u", uuid, &data->eventType, &data->eventData, &data->gpuInstanceId, &data->computeInstanceId) != 5) return 0;
	for (int i = 0; i < GPUS; i++) {
		if (!gpus[i].present || strcmp(gpus[i].uuid, uuid) != 0 || !(s->mask[i] & data->eventType)) continue;
		data->device = (nvmlDevice_t){(void *)&gpus[i]};
		*result = NVML_SUCCESS;
		return 1;
	}
	return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int limit) {
	struct set *s = (struct set *)set.handle;
	struct timespec began, now;
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (;;) {
		nvmlReturn_t result = begin(__func__);
		if (result != NVML_SUCCESS || next(s, data, &result)) return done(result);
		done(result);
		if (s->held && memchr(s->text, '\n', s->held)) continue;
		clock_gettime(CLOCK_MONOTONIC, &now);
		long passed = (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000;
		if (passed >= (long)limit) return NVML_ERROR_TIMEOUT;
		struct pollfd ready = {.fd = s->fifo, .events = POLLIN};
		if (poll(&ready, 1, (int)((long)limit - passed)) <= 0) continue;
		ssize_t got = read(s->fifo, s->text + s->held, sizeof s->text - s->held);
		if (got > 0) s->held += (size_t)got;
	}
}
