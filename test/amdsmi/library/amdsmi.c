/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stand-in for libamd_smi that says what a text file says: the file beside the library whose name is the library's and ".txt".
 * It has the functions that Tandem calls, with the types of amd_smi/amdsmi.h (ROCm/amdsmi). Lines of the file:
 *
 *   processor SOCKET BDFID VRAM UNCORRECTABLE   a GPU or partition: its socket's number, amdsmi_get_gpu_bdf_id, bytes, errors
 *   weight BDFID BDFID WEIGHT                   of the way between two, both ways
 *   status FUNCTION STATUS                      a function fails
 *   hang FUNCTION                               a function never returns
 *
 * The file is read anew by every call, so that a test can change it. One thread calls at a time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, FILE_ERROR = 14, NOT_INIT = 32, MOST = 128 };

typedef struct {
	uint64_t socket, bdfid, vram, uncorrectable;
} processor;

typedef struct {
	uint64_t a, b, weight;
} way;

typedef struct {
	uint64_t correctable, uncorrectable, deferred, reserved[5];
} error_count;

typedef struct {
	processor processors[MOST];
	uint64_t count, sockets;
	way ways[MOST * MOST];
	uint64_t way_count;
	int status; /* of the function that reads */
} machine;

static int initialised;

/* read_machine reads the file for one function. */
static int read_machine(machine *m, const char *function) {
	Dl_info own;
	char path[4096], line[512], name[128];
	int status;
	memset(m, 0, sizeof *m);
	if (!dladdr((void *)read_machine, &own) || snprintf(path, sizeof path, "%s.txt", own.dli_fname) >= (int)sizeof path)
		return FILE_ERROR;
	FILE *file = fopen(path, "r");
	if (!file)
		return FILE_ERROR;
	while (fgets(line, sizeof line, file)) {
		processor p;
		way w;
		if (sscanf(line, "processor %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &p.socket, &p.bdfid, &p.vram, &p.uncorrectable) == 4 && m->count < MOST) {
			m->processors[m->count++] = p;
			if (p.socket >= m->sockets)
				m->sockets = p.socket + 1;
		} else if (sscanf(line, "weight %" SCNu64 " %" SCNu64 " %" SCNu64, &w.a, &w.b, &w.weight) == 3 && m->way_count < MOST * MOST) {
			m->ways[m->way_count++] = w;
		} else if (sscanf(line, "status %127s %d", name, &status) == 2 && !strcmp(name, function)) {
			m->status = status;
		} else if (sscanf(line, "hang %127s", name) == 1 && !strcmp(name, function)) {
			for (;;)
				pause();
		}
	}
	fclose(file);
	return m->status;
}

/* OPEN begins a function: it reads the machine, or returns why it fails. */
#define OPEN(m)                                          \
	static machine m; /* too large for a stack */    \
	int failed = read_machine(&m, __func__);         \
	if (failed)                                      \
		return failed;                           \
	if (!initialised && strcmp(__func__, "amdsmi_init")) \
		return NOT_INIT

/* Handles are numbers plus one, so that none is NULL. */
static processor *find(machine *m, void *handle) {
	uint64_t i = (uintptr_t)handle - 1;
	return i < m->count ? &m->processors[i] : NULL;
}

int amdsmi_init(uint64_t flags) {
	OPEN(m);
	initialised = (flags & 2) != 0;
	return initialised ? SUCCESS : INVAL;
}

int amdsmi_get_socket_handles(uint32_t *count, void **handles) {
	OPEN(m);
	uint32_t room = handles ? *count : 0;
	for (uint64_t i = 0; i < m.sockets && i < room; i++)
		handles[i] = (void *)(uintptr_t)(i + 1);
	*count = (uint32_t)m.sockets;
	return SUCCESS;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
	OPEN(m);
	uint32_t found = 0, room = handles ? *count : 0;
	for (uint64_t i = 0; i < m.count; i++)
		if (m.processors[i].socket == (uintptr_t)socket - 1) {
			if (found < room)
				handles[found] = (void *)(uintptr_t)(i + 1);
			found++;
		}
	*count = found;
	return SUCCESS;
}

int amdsmi_get_gpu_bdf_id(void *handle, uint64_t *id) {
	OPEN(m);
	processor *p = find(&m, handle);
	if (!p)
		return INVAL;
	*id = p->bdfid;
	return SUCCESS;
}

int amdsmi_get_gpu_memory_total(void *handle, int kind, uint64_t *bytes) {
	OPEN(m);
	processor *p = find(&m, handle);
	if (!p || kind != 0)
		return INVAL;
	*bytes = p->vram;
	return SUCCESS;
}

int amdsmi_get_gpu_total_ecc_count(void *handle, error_count *count) {
	OPEN(m);
	processor *p = find(&m, handle);
	if (!p)
		return INVAL;
	memset(count, 0, sizeof *count);
	count->uncorrectable = p->uncorrectable;
	return SUCCESS;
}

int amdsmi_topo_get_link_weight(void *from, void *to, uint64_t *weight) {
	OPEN(m);
	processor *a = find(&m, from), *b = find(&m, to);
	if (!a || !b)
		return INVAL;
	for (uint64_t i = 0; i < m.way_count; i++) {
		way *w = &m.ways[i];
		if ((w->a == a->bdfid && w->b == b->bdfid) || (w->a == b->bdfid && w->b == a->bdfid)) {
			*weight = w->weight;
			return SUCCESS;
		}
	}
	return NOT_SUPPORTED;
}
