/** What kernels share on the host that have to do with Adam's state. */
#ifndef TLOB_KERNELS_ADAM_HOST_H
#define TLOB_KERNELS_ADAM_HOST_H

#include <math.h>

#include "libtlob/kernels/kernels.h"

/** One step further. */
static inline void tlob_adam_advance(tlob_adam_state *s) {
    s->t += 1;
    s->correction1 = (float)(1.0 - pow(s->beta1, (double)s->t));
    s->correction2 = (float)(1.0 - pow(s->beta2, (double)s->t));
}

#endif
