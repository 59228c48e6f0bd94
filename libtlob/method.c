/* Methods as values, and which there are for a problem. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libtlob/internal.h"

tlob_status tlob_method_check(const tlob_method *method, const char *operation) {
    if (!method)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "method is NULL");
    if (!memchr(method->backend, 0, sizeof(method->backend)))
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the backend of the method is no string of at most %d characters",
                         (int)sizeof(method->backend) - 1);
    if ((unsigned)method->form >= TLOB_FORM_COUNT)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the form of the method is %d, which is no tlob_form",
                         (int)method->form);
    if (method->n_configuration < 0 || method->n_configuration > TLOB_METHOD_FIELDS_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, operation, "the method has %d fields, must be from 0 to %d",
                         method->n_configuration, TLOB_METHOD_FIELDS_MAX);
    for (int i = 0; i < method->n_configuration; i++)
        if (!method->configuration[i].name)
            return tlob_fail(TLOB_ERR_ARGUMENT, operation, "field %d of the method has no name", i);
    return TLOB_OK;
}

/* How often a method has a field of this name and value. */
static int count_field(const tlob_method *method, const tlob_algorithm_field *field) {
    int count = 0;
    for (int i = 0; i < method->n_configuration; i++)
        count += method->configuration[i].value == field->value && !strcmp(method->configuration[i].name, field->name);
    return count;
}

bool tlob_method_equal(const tlob_method *a, const tlob_method *b) {
    bool equal = !strncmp(a->backend, b->backend, sizeof(a->backend)) && a->form == b->form &&
                 a->n_configuration == b->n_configuration;
    for (int i = 0; equal && i < a->n_configuration; i++)
        equal = count_field(a, &a->configuration[i]) == count_field(b, &a->configuration[i]);
    return equal;
}

void tlob_configuration_print(const tlob_method *method, char *text, size_t size) {
    size_t used = 0;
    if (size)
        *text = 0;
    for (int i = 0; i < method->n_configuration && used < size; i++) {
        const tlob_algorithm_field *field = &method->configuration[i];
        if (field->value)
            used += (size_t)snprintf(text + used, size - used, "%s%s %" PRId64, used ? " " : "", field->name,
                                     field->value);
    }
}

void tlob_method_print(const tlob_method *method, char *text, size_t size) {
    int used = snprintf(text, size, "%.*s, %s%s", (int)sizeof(method->backend), method->backend,
                        tlob_form_name(method->form), method->n_configuration ? ", " : "");
    if (used > 0 && (size_t)used < size)
        tlob_configuration_print(method, text + used, size - (size_t)used);
}

/* --- which there are --------------------------------------------------------------------------------------------- */

/* Whom to show methods to, and the one that grows. */
typedef struct visit {
    tlob_method_fn each;
    void *user;
    tlob_method method;
    bool overflowed; /* whether a backend has proposed more fields than a method has room for */
} visit;

static void show_proposed(void *user, const tlob_algorithm_field *fields, int count) {
    visit *v = user;
    if (count < 1 || count > TLOB_METHOD_FIELDS_MAX) {
        v->overflowed = true;
        return;
    }
    v->method.n_configuration = count;
    memcpy(v->method.configuration, fields, (size_t)count * sizeof(*fields));
    v->each(v->user, &v->method);
}

/* The backend's own choice, and what it proposes. That its library knows nothing of a problem is no failure here. */
static tlob_status show_form(tlob_stream *stream, int index, const tlob_gemm *part, const tlob_gemm_operands *x,
                             visit *v) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    const tlob_error before = *tlob_last_error();
    v->method.n_configuration = 0;
    v->each(v->user, &v->method);
    if (!ops->propose || !tlob_has_product(part))
        return TLOB_OK;
    tlob_status status = ops->propose(stream->lanes[index], part, x, show_proposed, v);
    if (status == TLOB_ERR_UNSUPPORTED)
        status = TLOB_OK;
    if (status == TLOB_OK)
        tlob_error_restore(&before);
    if (status == TLOB_OK && v->overflowed)
        status = tlob_backend_fail(TLOB_ERR_BACKEND, ops->name, "propose", 0, NULL, part,
                                   "the backend proposes configurations without fields, or with more than %d",
                                   TLOB_METHOD_FIELDS_MAX);
    return status;
}

static tlob_status show_backend(tlob_stream *stream, int index, const tlob_gemm *g, const tlob_gemm_operands *x,
                                visit *v) {
    const tlob_backend_ops *ops = stream->ctx->backends[index];
    const tlob_gemm_operands none = {0};
    tlob_status status = TLOB_OK;
    snprintf(v->method.backend, sizeof(v->method.backend), "%s", ops->name);
    for (int form = 0; form < TLOB_FORM_COUNT && status == TLOB_OK; form++) {
        v->method.form = (tlob_form)form;
        if (tlob_form_unsupported(ops, stream->ctx->settings.deterministic, v->method.form, g, x))
            continue;
        const tlob_gemm part = tlob_form_part(v->method.form, g);
        const tlob_gemm_operands worst = tlob_form_least_aligned(v->method.form, g, x ? x : &none);
        status = show_form(stream, index, &part, &worst, v);
    }
    return status;
}

tlob_status tlob_gemm_methods(tlob_stream *stream, const tlob_gemm *gemm, const tlob_gemm_operands *x,
                              tlob_method_fn visit_one, void *user) {
    const char *where = "tlob_gemm_methods";
    tlob_status status = tlob_stream_check(stream, where);
    if (status == TLOB_OK && !visit_one)
        status = tlob_fail(TLOB_ERR_ARGUMENT, where, "visit is NULL");
    if (status == TLOB_OK)
        status = tlob_gemm_check(gemm);
    if (status == TLOB_OK)
        status = tlob_refuse_capture(stream->ctx, stream->cuda_stream, where, "ask before the capture begins");
    void *previous;
    if (status != TLOB_OK || (status = tlob_enter(stream->ctx, &previous)) != TLOB_OK)
        return status;
    visit v = {.each = visit_one, .user = user};
    tlob_gemm g = *gemm;
    if (g.compute == TLOB_COMPUTE_DEFAULT)
        g.compute = stream->ctx->settings.compute;
    for (int i = 0; i < stream->ctx->n_backends && status == TLOB_OK; i++)
        status = show_backend(stream, i, &g, x, &v);
    tlob_leave(stream->ctx, previous);
    return status;
}
