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

#ifdef __cplusplus
extern "C" {
#endif

#define RUEDA_API __attribute__((visibility("default")))

/* Raised when a struct or call changes; structs carry their own size, so older callers go on. */
#define RUEDA_ABI_VERSION 3

typedef enum rueda_code {
  RUEDA_OK = 0,
  RUEDA_INVALID_ARGUMENT = 1,
  RUEDA_ALREADY_EXISTS = 2, /* the name is still in flight in this process */
  RUEDA_MISMATCH = 3,       /* ranks disagree on dtype, shape, op, root or scale */
  RUEDA_RANK_LOST = 4,      /* a rank died; text names rank, host, pid, signal */
  RUEDA_SHUT_DOWN = 5,      /* a rank shut the job down */
  RUEDA_DAEMON_LOST = 6,
  RUEDA_NOT_INITIALIZED = 7,
  RUEDA_DEADLINE_EXCEEDED = 8,
  RUEDA_RESOURCE_EXHAUSTED = 9,
  RUEDA_PERMISSION_DENIED = 10,
  RUEDA_UNAVAILABLE = 11,
  RUEDA_PROTOCOL_ERROR = 12,
  RUEDA_INTERRUPTED = 13, /* the interrupted callback asked to stop */
  RUEDA_INTERNAL = 14,
  RUEDA_UNIMPLEMENTED = 15,
  RUEDA_STALLED = 16
} rueda_code;

typedef enum rueda_dtype {
  RUEDA_UINT8 = 0,
  RUEDA_INT8 = 1,
  RUEDA_UINT16 = 2,
  RUEDA_INT16 = 3,
  RUEDA_INT32 = 4,
  RUEDA_INT64 = 5,
  RUEDA_FLOAT16 = 6,
  RUEDA_FLOAT32 = 7,
  RUEDA_FLOAT64 = 8,
  RUEDA_BOOL = 9,
  RUEDA_BFLOAT16 = 10,
  RUEDA_UINT32 = 11,
  RUEDA_UINT64 = 12,
  RUEDA_FLOAT8_E4M3FN = 13,
  RUEDA_FLOAT8_E5M2 = 14,
  RUEDA_COMPLEX64 = 15, /* two float32: real part, imaginary part */
  RUEDA_COMPLEX128 = 16
} rueda_dtype;

typedef enum rueda_reduce_op {
  RUEDA_AVERAGE = 0,
  RUEDA_SUM = 1,
  RUEDA_ADASUM = 2, /* allreduce of float16, bfloat16, float32, float64 */
  RUEDA_MIN = 3,
  RUEDA_MAX = 4,
  RUEDA_PRODUCT = 5
} rueda_reduce_op;

typedef enum rueda_kind {
  RUEDA_ALLREDUCE = 0,
  RUEDA_ALLGATHER = 1,
  RUEDA_BROADCAST = 2,
  RUEDA_BARRIER = 3,
  RUEDA_ALLTOALL = 4,
  RUEDA_REDUCESCATTER = 5
} rueda_kind;

typedef struct rueda_session rueda_session; /* opaque */
typedef uint64_t rueda_handle;              /* of one asynchronous operation; never 0 */

/* What can be done with a data type. All can be gathered and broadcast. */
typedef struct rueda_dtype_info {
  uint32_t struct_size;
  uint32_t bytes;      /* of one element */
  uint32_t reduce_ops; /* bit 1 << rueda_reduce_op for each that an allreduce can do */
  uint32_t reserved;
  const char* name; /* as torch and numpy say; static */
} rueda_dtype_info;

/* How to join a job. Fill with rueda_options_init, then change what is needed. */
typedef struct rueda_options {
  uint32_t struct_size; /* sizeof(rueda_options) of the caller */
  int32_t rank, size;
  int32_t local_rank, local_size;
  int32_t cross_rank, cross_size;
  char socket[108]; /* path, or "@name" for an abstract socket; empty: the system daemon */
  char job[128];    /* ranks with one job id and one uid find each other */
  char hostname[256];
  uint32_t start_timeout_ms; /* for all ranks to arrive; default 30 000 */
  uint32_t isolated;         /* 1: ranks do not map each other's memory, the daemon sums */
  /* Called (at least every 100 ms, and on EINTR) while a call waits; nonzero ends the wait with
     RUEDA_INTERRUPTED. May be NULL. */
  int (*interrupted)(void* context);
  void* interrupted_context;
  /* What the job wants of the daemon; rank 0's count. 0: as the operator has set it, -1: off. */
  int64_t fusion_bytes;      /* largest fused operation of one rank */
  int64_t cycle_us;          /* operations are collected for that long before they run */
  int64_t stall_warn_ms;     /* after that long the daemon's log says who is waited for */
  int64_t stall_shutdown_ms; /* after that long the job fails with RUEDA_STALLED */
  int32_t groups_apart;      /* 1: groups fuse with their own members only */
  int32_t fusion_look_back;  /* operations back that one may look for another to join */
  /* Empty: no timeline. "DYNAMIC": from rueda_start_timeline on. Else a path that rank 0 writes
     from rueda_open on; if it cannot, a line on standard error says why. */
  char timeline[1024];
  int32_t timeline_mark_cycles; /* 1: cycles, too; of the one that begins with rueda_open */
  uint32_t reserved;
} rueda_options;

/* One collective operation. Zero-initialise, set struct_size, fill what the kind needs.
   reducescatter: `output` gets the combined rows of this rank alone; the first dimension is dealt
   out in order, the first (rows % size) ranks get one row more. alltoall: rows go to the ranks in
   order; what the splits leave over stays. */
typedef struct rueda_op {
  uint32_t struct_size;
  uint8_t kind;      /* rueda_kind */
  uint8_t dtype;     /* rueda_dtype */
  uint8_t reduce_op; /* rueda_reduce_op; allreduce and reducescatter */
  uint8_t reserved;
  const char* name;     /* at most 1024 bytes, not NULL; equal on all ranks */
  const void* input;    /* broadcast: ignored on ranks that are not root */
  void* output;         /* may be input, but for a reducescatter; allgather, alltoall: no byte of
                           input, and NULL: the library finds the place */
  const int64_t* shape; /* of input; NULL when ndim is 0 (a scalar: 1 element) */
  uint32_t ndim;        /* at most 64 */
  int32_t root;         /* broadcast only: rank of the source */
  double prescale;      /* 0 is read as 1 for zero-initialised structs with scale_set 0 */
  double postscale;
  uint32_t scale_set;    /* 1: prescale and postscale hold values; 0: both are 1 */
  uint32_t splits_count; /* ranks of the process set, if splits are given */
  const int64_t* splits; /* alltoall: rows for each rank; NULL: as many for each */
  /* Allgather and alltoall, whose result is the rows of rank 0, then of rank 1, …: */
  uint64_t output_bytes; /* room at `output`; a result that is longer is INVALID_ARGUMENT there, and
                            the other ranks get theirs */
  void** result;     /* rueda_run with output NULL: gets the address of the result in memory as from
                        rueda_alloc, which rueda_free gives back; NULL for a result of no bytes */
  int64_t* received; /* rueda_run: gets the rows from each rank, `size` values; may be NULL */
  uint32_t process_set; /* from rueda_add_process_set; 0: all ranks of the job */
  int32_t priority;     /* of what is complete at one moment the highest runs first */
} rueda_op;

/* Result of an allgather or alltoall that was submitted, valid until rueda_release. */
typedef struct rueda_gathered {
  uint32_t struct_size;
  uint32_t ranks;
  const void* data; /* `output` of the operation, or memory of the session; NULL for no bytes */
  uint64_t bytes;
  const int64_t* first_dims; /* rows from each rank; `ranks` values */
} rueda_gathered;

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
   RUEDA_INVALID_ARGUMENT names a variable that is malformed or missing in a half-set environment.
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
   same *set. Blocking. MISMATCH names both lists; ALREADY_EXISTS the set that has these ranks;
   INVALID_ARGUMENT: a number that is no rank, or twice the same. */
RUEDA_API int32_t rueda_add_process_set(rueda_session* session, const int32_t* ranks,
                                        uint32_t count, uint32_t* set);
/* Dissolves it; what waits in it ends with UNAVAILABLE, and its number may be given out again. All
   ranks of the job. Blocking. INVALID_ARGUMENT: there is no such set. */
RUEDA_API int32_t rueda_remove_process_set(rueda_session* session, uint32_t set);

/* This rank has no more data: the other ranks of the set go on until all have joined. Blocking
   until then; *last_rank is the one that joined last. left_out 0: in an allreduce this rank counts
   with zeros (an average still divides by all), a barrier does not wait for it, and everything else
   ends with MISMATCH. left_out 1: operations run as though it were not in the set, but for a
   broadcast from it. */
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
   are in flight. On an error nothing was submitted. */
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
