/* SPDX-License-Identifier: Apache-2.0 */
/* rueda_types.h: the numbers and structs of the C ABI. Include rueda.h, which has the calls. */
#ifndef RUEDA_TYPES_H_
#define RUEDA_TYPES_H_

#include <stdint.h>

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
  int32_t groups_apart;      /* 1: groups fuse with their own members only; -1: with others too */
  int32_t fusion_look_back;  /* operations back that one may look for another to join; -1: one */
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
  int64_t* received; /* rueda_run: gets the rows from each rank of the set; may be NULL */
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

#endif /* RUEDA_TYPES_H_ */
