/* What has to be asked of the system before the first kernel runs. */
#if defined(__AMX_BF16__) && !defined(NO_AMX)

#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* Linux gives a process AMX's tile registers when it asks (Documentation/arch/x86/xstate.rst), for its threads of then
 * and later. 0 if it refuses. */
int processor_prepare(void) { return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA); }

#else

int processor_prepare(void) { return 1; }

#endif
