/* See team.h.
 *
 * Who waits spins for a while, since the next piece of work is microseconds away, and then sleeps on a futex: other
 * processes need the cores too, and a thread that spins on the core that the awaited one needs would wait for itself.
 */
#define _GNU_SOURCE
#include "team.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 2000 }; /* of some 50 ns: as long as a piece of work */

struct Team {
    int members;
    atomic_uint round;   /* of team_run: counts up */
    atomic_uint meeting; /* of team_meet: counts up */
    atomic_int arrived;
    atomic_int sleepers;
    atomic_int stopping;
    Work work;
    void *argument;
    pthread_t threads[];
};

typedef struct {
    Team *team;
    int member;
} Start;

static inline void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void await_change(Team *team, atomic_uint *word, uint32_t old) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        pause_briefly();
    }
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void change(Team *team, atomic_uint *word) {
    atomic_fetch_add(word, 1); /* before sleepers is read, in the order that all see */
    if (atomic_load(&team->sleepers))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void team_meet(Team *team) {
    uint32_t meeting = atomic_load_explicit(&team->meeting, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == team->members - 1) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        change(team, &team->meeting);
    } else {
        await_change(team, &team->meeting, meeting);
    }
}

static void *serve(void *argument) {
    Start start = *(Start *)argument;
    Team *team = start.team;
    free(argument);
    for (uint32_t round = 0;; round++) {
        await_change(team, &team->round, round);
        if (atomic_load_explicit(&team->stopping, memory_order_relaxed))
            return NULL;
        team->work(team->argument, start.member);
        team_meet(team);
    }
}

void team_run(Team *team, Work work, void *argument) {
    team->work = work;
    team->argument = argument;
    if (team->members > 1)
        change(team, &team->round);
    work(argument, 0);
    team_meet(team);
}

Team *team_start(int members) {
    Team *team = calloc(1, sizeof(Team) + (size_t)members * sizeof(pthread_t));
    if (!team)
        return NULL;
    team->members = 1;
    sigset_t all, before; /* signals are the main thread's business */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (team->members < members) {
        Start *start = malloc(sizeof(Start));
        if (start)
            *start = (Start){team, team->members};
        if (!start || pthread_create(&team->threads[team->members], NULL, serve, start)) {
            free(start);
            team_stop(team);
            team = NULL;
            break;
        }
        team->members++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return team;
}

void team_stop(Team *team) {
    atomic_store_explicit(&team->stopping, 1, memory_order_relaxed);
    change(team, &team->round);
    for (int member = 1; member < team->members; member++)
        pthread_join(team->threads[member], NULL);
    free(team);
}

int team_members(const Team *team) { return team->members; }
