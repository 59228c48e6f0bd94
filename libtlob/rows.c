/* Backends by name: libtlob's own and rows of the embedder's, which are looked through before they are used. */
#include <stdio.h>
#include <string.h>

#include "libtlob/internal.h"

#define NAME_MAX_LENGTH 23

static const char where[] = "tlob_context_params.backends";

static int count_own(void) {
    int count = 0;
    while (tlob_backend_table[count])
        count++;
    return count;
}

const tlob_backend_ops *tlob_row_at(tlob_rows rows, int index) {
    int own = count_own();
    if (index < own)
        return tlob_backend_table[index];
    return index - own < rows.count ? rows.row[index - own] : NULL;
}

const tlob_backend_ops *tlob_row_find(tlob_rows rows, const char *name) {
    const tlob_backend_ops *ops;
    for (int i = 0; (ops = tlob_row_at(rows, i)); i++)
        if (!strcmp(ops->name, name))
            return ops;
    return NULL;
}

void tlob_row_names(tlob_rows rows, char *text, size_t size) {
    size_t used = 0;
    const tlob_backend_ops *ops;
    text[0] = 0;
    for (int i = 0; (ops = tlob_row_at(rows, i)) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", ops->name);
}

bool tlob_name_well_formed(const char *name, size_t size) {
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length >= 1 && length <= NAME_MAX_LENGTH && length < size && !name[length];
}

/* What a row lacks, or NULL. A row that is missing has neither slots nor much in its caps. */
static const char *find_fault(const tlob_backend_ops *ops) {
    const tlob_backend_caps *caps = &ops->caps;
    if (ops->missing)
        return NULL;
    if (!ops->open || !ops->close || !ops->sgemm)
        return "open, close and sgemm are required";
    if (!(caps->computes & (1u << TLOB_COMPUTE_TF32 | 1u << TLOB_COMPUTE_FP32)))
        return "caps.computes has neither TF32 nor FP32";
    if (!(caps->epilogues & 1u << TLOB_EPILOGUE_NONE))
        return "caps.epilogues must have NONE";
    if (caps->epilogues >> TLOB_EPILOGUE_COUNT)
        return "caps.epilogues has bits of no epilogue";
    if (caps->epilogues != 1u << TLOB_EPILOGUE_NONE && !ops->matmul_bias)
        return "caps.epilogues has more than NONE, which needs matmul_bias";
    if (caps->max_batch > 1 && !ops->sgemm_strided_batched)
        return "caps.max_batch is above 1, which needs sgemm_strided_batched";
    if (!ops->attach != !ops->detach)
        return "attach and detach go together";
    if (!ops->list_algorithms != !ops->offer_algorithm || (ops->list_algorithms && !ops->attach))
        return "list_algorithms and offer_algorithm go together, and need attach";
    if (!ops->propose != !ops->adopt)
        return "propose and adopt go together";
    return NULL;
}

static tlob_status check_row(tlob_rows rows, int index, tlob_memory memory) {
    const tlob_backend_ops *ops = rows.row[index];
    if (!ops)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "row %d is NULL", index);
    if (ops->api != TLOB_BACKEND_API) /* and then nothing behind it is where this library would look */
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "row %d was compiled for version %u of the backend interface, and this libtlob speaks version "
                         "%u: compile it with this libtlob's <tlob/backend.h>", index, (unsigned)ops->api,
                         (unsigned)TLOB_BACKEND_API);
    if (!ops->name || !tlob_name_well_formed(ops->name, NAME_MAX_LENGTH + 1))
        return tlob_fail(TLOB_ERR_ARGUMENT, where,
                         "row %d has the name '%.40s', must be 1 to %d lower case letters, digits and '_'", index,
                         ops->name ? ops->name : "", NAME_MAX_LENGTH);
    if (tlob_row_find((tlob_rows){rows.row, index}, ops->name))
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "row %d: another backend is named '%s' already", index, ops->name);
    if (ops->caps.memory != memory)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "row %d, %s, works on %s memory, and the context is for %s", index,
                         ops->name, tlob_memory_name(ops->caps.memory), tlob_memory_name(memory));
    const char *fault = find_fault(ops);
    return fault ? tlob_fail(TLOB_ERR_ARGUMENT, where, "row %d, %s: %s", index, ops->name, fault) : TLOB_OK;
}

tlob_status tlob_rows_check(tlob_rows rows, tlob_memory memory) {
    if (rows.count < 0 || rows.count > TLOB_BACKENDS_MAX)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "n_backends is %d, must be from 0 to %d", rows.count,
                         TLOB_BACKENDS_MAX);
    if (rows.count && !rows.row)
        return tlob_fail(TLOB_ERR_ARGUMENT, where, "is NULL, and n_backends is %d", rows.count);
    tlob_status status = TLOB_OK;
    for (int i = 0; i < rows.count && status == TLOB_OK; i++)
        status = check_row(rows, i, memory);
    return status;
}
