/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rueda.h: the public C ABI of librueda. C11 and C++.
 *
 * One session is one rank of one job, connected to the daemon of its host. Collectives match across
 * ranks by name. Every call that returns rueda_code returns RUEDA_OK (0) or a positive code, and
 * then rueda_last_error() holds a text for the calling thread that names the tensor, the ranks and
 * the values concerned.
 *
 * Threads: all calls on a session may be made from any thread at any time, except rueda_close,
 * which must be the last call on its session. Calls marked "blocking" may wait for other ranks;
 * they hold no lock that a non-blocking call of another thread needs.
 * Fork: a session belongs to the process that opened it. In a forked child every call answers
 * RUEDA_NOT_INITIALIZED, and closing or exiting there does not touch the parent's session. Memory
 * from rueda_alloc is the child's own copy there: what it writes does not appear in the parent.
 */
#ifndef RUEDA_H_
#define RUEDA_H_

#include <stdint.h>

#include "rueda_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RUEDA_API __attribute__((visibility("default")))

/* Raised when a struct or call changes; structs carry their own size, so older callers go on. */
#define RUEDA_ABI_VERSION 3

/* --- library ------------------------------------------------------------------------------- */

/* RUEDA_ABI_VERSION of the loaded library. Never blocks. */
RUEDA_API uint32_t rueda_abi_version(void);
/* "0.1.0". Static. */
RUEDA_API const char* rueda_version(void);
/* Text of the last failure in the calling thread; valid until its next rueda call. */
RUEDA_API const char* rueda_last_error(void);
/* Lower-case name of a code, e.g. "rank lost". Static. */
RUEDA_API const char* rueda_code_name(int32_t code);
/* Bytes of one element, or 0 for an unknown dtype. */
RUEDA_API uint32_t rueda_dtype_size(uint32_t dtype);
/* Fills `info` (struct_size set by the caller first). Data types have the numbers from 0 on without
   a gap: INVALID_ARGUMENT is the end of them. Never blocks. */
RUEDA_API int32_t rueda_describe_dtype(uint32_t dtype, rueda_dtype_info* info);

/* --- session ------------------------------------------------------------------------------- */

/* Fills `options` (struct_size set by the caller first) from RUEDA_* and, where those are missing,
   HOROVOD_* variables: RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME, and
   RUEDA_SOCKET RUEDA_JOB RUEDA_START_TIMEOUT (seconds) RUEDA_ISOLATED. Without any of them: a job
   of one rank. What the job wants of the daemon: FUSION_THRESHOLD (bytes) CYCLE_TIME (ms)
   STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS, 0 = off; STALL_CHECK_DISABLE,
   DISABLE_GROUP_FUSION, 1 = so; FUSION_LOOK_BACK. And TIMELINE, TIMELINE_MARK_CYCLES.
   RUEDA_INVALID_ARGUMENT names a variable that is malformed, out of its range or missing in a
   half-set environment.
   Never blocks. */
RUEDA_API int32_t rueda_options_init(rueda_options* options);

/* Connects, and waits until all ranks of the job have. Blocking, up to start_timeout_ms.
   Errors: UNAVAILABLE (no daemon, with what to do), DEADLINE_EXCEEDED (names the missing ranks),
   PERMISSION_DENIED, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, PROTOCOL_ERROR (versions). */
RUEDA_API int32_t rueda_open(const rueda_options* options, rueda_session** session);

/* Leaves the job; pending operations of all its ranks end with RUEDA_SHUT_DOWN. Frees the session
   and everything allocated from it. Accepts NULL. Does not block. */
RUEDA_API void rueda_close(rueda_session* session);

RUEDA_API int32_t rueda_rank(const rueda_session* session);
RUEDA_API int32_t rueda_size(const rueda_session* session);

/* OK while the session can run operations; else the failure that ended it. Does not block. */
RUEDA_API int32_t rueda_health(rueda_session* session);

/* Makes a process set of `count` ranks of the job, in any order: its operations wait for its ranks
   only. All ranks of the job call it with the same ranks, those that stay outside too, and get the
   same *set. Blocking. MISMATCH names both lists; ALREADY_EXISTS the set that has these
   ranks, or says that another thread of this rank is making one;
   INVALID_ARGUMENT: a number that is no rank, or twice the same. */
RUEDA_API int32_t rueda_add_process_set(rueda_session* session, const int32_t* ranks,
                                        uint32_t count, uint32_t* set);
/* Dissolves it; what waits in it ends with UNAVAILABLE, and its number may be given out again. All
   ranks of the job. Blocking. INVALID_ARGUMENT: there is no such set. */
RUEDA_API int32_t rueda_remove_process_set(rueda_session* session, uint32_t set);

/* This rank has no more data: the other ranks of the set go on until all have joined. Blocking
   until then; *last_rank is the one that joined last. left_out 0: in an allreduce this rank counts
   with zeros (an average still divides by all), a barrier does not wait for it, and everything else
   ends with MISMATCH. left_out 1: operations run without it, but for a broadcast from it: it
   gives nothing and gets nothing; rows that are dealt out to it go to nobody. */
RUEDA_API int32_t rueda_join(rueda_session* session, uint32_t set, int32_t left_out,
                             int32_t* last_rank);

/* Begins to write what happens to operations to `path`, a trace for chrome://tracing or Perfetto:
   on rank 0 of those that it submits from now on; on other ranks nothing. The file is valid JSON at
   any time. While one runs, a line on standard error, and OK. Operations of rank 0 go through the
   daemon meanwhile. INVALID_ARGUMENT: options.timeline is empty, or the path cannot be written. */
RUEDA_API int32_t rueda_start_timeline(rueda_session* session, const char* path,
                                       int32_t mark_cycles);
/* Completes the file. Where none runs, a line on standard error, and OK. */
RUEDA_API int32_t rueda_stop_timeline(rueda_session* session);

/* --- memory -------------------------------------------------------------------------------- */

/* Memory that the daemon and the other ranks reach without a copy; 64-byte aligned, zeroed the
   first time. Blocking while the daemon makes a new segment (milliseconds per 100 MB: every page
   is touched). RESOURCE_EXHAUSTED names the quota. */
RUEDA_API int32_t rueda_alloc(rueda_session* session, uint64_t bytes, void** pointer);
/* Gives the block back to the arena of the session. REQUIRES: no operation on it is in flight. */
RUEDA_API int32_t rueda_free(rueda_session* session, void* pointer);
/* 1 if [pointer, pointer + bytes) lies inside memory from rueda_alloc, else 0. */
RUEDA_API int32_t rueda_owns(rueda_session* session, const void* pointer, uint64_t bytes);

/* --- operations ---------------------------------------------------------------------------- */

/* Runs one operation and returns when `output` or `*result` holds the result. Blocking. The calling
   thread takes part in the work. The fastest way for one tensor. */
RUEDA_API int32_t rueda_run(rueda_session* session, const rueda_op* op);

/* Starts `count` operations; handles[i] belongs to ops[i]. More than one op forms a group: all of
   them become ready together. Memory outside rueda_alloc is copied in here and out in rueda_wait.
   The caller must not touch inputs and outputs until rueda_wait. Blocks only when 16 384 operations
   are in flight. On an error nothing was submitted; what this rank has no memory for ends with
   RESOURCE_EXHAUSTED on all ranks. */
RUEDA_API int32_t rueda_submit(rueda_session* session, const rueda_op* ops, uint32_t count,
                               rueda_handle* handles);

/* *done = 1 when the operation has an outcome. Does not block. INVALID_ARGUMENT: unknown handle. */
RUEDA_API int32_t rueda_poll(rueda_session* session, rueda_handle handle, int32_t* done);

/* Waits for the outcome and returns it; afterwards the handle is forgotten, except for an
   allgather or alltoall, which lives until rueda_release. Blocking; timeout_ms 0 = no limit, else
   DEADLINE_EXCEEDED and the handle stays valid. */
RUEDA_API int32_t rueda_wait(rueda_session* session, rueda_handle handle, uint32_t timeout_ms);

/* The result of a finished allgather or alltoall. Valid until rueda_release. Does not block. */
RUEDA_API int32_t rueda_gather_result(rueda_session* session, rueda_handle handle,
                                      rueda_gathered* result);
RUEDA_API int32_t rueda_release(rueda_session* session, rueda_handle handle);

#ifdef __cplusplus
}
#endif
#endif /* RUEDA_H_ */
