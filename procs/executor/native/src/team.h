/* A team of threads that run one function together, and meet at barriers inside it. */
#pragma once

#include <stdatomic.h>

typedef struct Team Team;
typedef void (*Work)(void *argument, int member);

/* `members` threads, the caller's own counted; 0 if they could not be started. */
Team *team_start(int members);

/* Members run work(argument, 0 .. members - 1); returns when all are done. One caller at a time. */
void team_run(Team *team, Work work, void *argument);

/* To be called by all members: none goes on before all have come. */
void team_meet(Team *team);

void team_stop(Team *team);
int team_members(const Team *team);

/* The next of `count` items, or -1: each is given out once. */
static inline int next_item(atomic_int *counter, int count) {
    int item = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    return item < count ? item : -1;
}
