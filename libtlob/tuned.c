/* Policy tuned: what was measured decides. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtlob/table.h"

/* --- a context's table -------------------------------------------------------------------------------------------- */

/* What of the table does not count here, so that nobody takes its silence for agreement. */
static void warn_of_others(const tlob_context *ctx, const tlob_table *table, int64_t foreign) {
    const tlob_record *rejected = table->rejected.count ? table->rejected.list[0] : NULL;
    if (rejected)
        tlob_log(ctx, TLOB_LOG_WARN, "policy tuned: %zu entries are rejected, the first: %s: %s", table->rejected.count,
                 rejected->entry.source, rejected->entry.rejected);
    for (size_t i = 0; foreign && i < table->kept.count; i++) {
        const tlob_table_entry *entry = &table->kept.list[i]->entry;
        char why[300];
        if (tlob_table_foreign(entry, tlob_context_device_info(ctx), why, sizeof(why))) {
            tlob_log(ctx, TLOB_LOG_WARN, "policy tuned: %" PRId64 " entries do not count here, the first: %s%s%s",
                     foreign, entry->source, *entry->source ? ": " : "", why);
            return;
        }
    }
}

/* Likewise of its blocks, where it has any. */
static void tell_of_blocks(const tlob_context *ctx, const tlob_table *table) {
    const tlob_device_info *device = tlob_context_device_info(ctx);
    const int64_t all = tlob_table_count_blocks(table, NULL), here = tlob_table_count_blocks(table, device);
    if (all)
        tlob_log(ctx, TLOB_LOG_INFO,
                 "policy tuned: %s: %" PRId64 " of %" PRId64 " blocks are for '%s' and its libraries",
                 tlob_table_name(table), here, all, device->name);
    if (table->rejected_blocks.count)
        tlob_log(ctx, TLOB_LOG_WARN, "policy tuned: %zu blocks are rejected, the first: %s: %s",
                 table->rejected_blocks.count, table->rejected_blocks.list[0]->source,
                 table->rejected_blocks.list[0]->rejected);
    for (size_t i = 0; here < all && i < table->blocks.count; i++) {
        const tlob_table_block *entry = table->blocks.list[i];
        char why[300];
        if (tlob_table_foreign_block(entry, device, why, sizeof(why))) {
            tlob_log(ctx, TLOB_LOG_WARN, "policy tuned: %" PRId64 " blocks do not count here, the first: %s%s%s",
                     all - here, entry->source, *entry->source ? ": " : "", why);
            return;
        }
    }
}

tlob_status tlob_tuned_open(tlob_context *ctx) {
    tlob_policy *policy = &ctx->settings.policy;
    if (policy->kind != TLOB_POLICY_TUNED)
        return TLOB_OK;
    if (!policy->table) {
        tlob_status status = tlob_table_read(ctx->settings.table_path, &ctx->table, NULL);
        if (status != TLOB_OK)
            return status;
        policy->table = ctx->table;
    }
    int64_t all = tlob_table_count(policy->table, NULL);
    int64_t here = tlob_table_count(policy->table, tlob_context_device_info(ctx));
    ctx->refusals = calloc((size_t)all + 1, sizeof(*ctx->refusals));
    if (!ctx->refusals)
        return tlob_fail(TLOB_ERR_OUT_OF_MEMORY, "policy tuned", "no memory to note which entries are refused");
    tlob_log(ctx, TLOB_LOG_INFO, "policy tuned: %s: %" PRId64 " of %" PRId64 " entries are for '%s' and its libraries",
             tlob_table_name(policy->table), here, all,
             tlob_context_device_info(ctx)->name);
    warn_of_others(ctx, policy->table, all - here);
    tell_of_blocks(ctx, policy->table);
    return TLOB_OK;
}

void tlob_tuned_close(tlob_context *ctx) {
    tlob_table_destroy(&ctx->table);
    free(ctx->refusals);
    ctx->refusals = NULL;
}

/* --- decisions ---------------------------------------------------------------------------------------------------- */

static const char *source_of(const tlob_table_entry *entry) {
    return *entry->source ? entry->source : "an entry of the table";
}

/* The rule for misses. `why` tells of the miss. */
static tlob_status decide_miss(const tlob_policy *policy, const tlob_device_info *device, const tlob_gemm *gemm,
                               const char *why, tlob_method *method, char *reason, size_t size) {
    if (policy->strict) {
        char problem[256];
        tlob_problem_print(gemm, problem, sizeof(problem));
        tlob_fail(TLOB_ERR_POLICY, "policy tuned:strict",
                  "%s, on %s: %s; measure it, or use `tuned`, which leaves such products to the default policy",
                  tlob_table_name(policy->table), problem, why);
        tlob_fail_gemm(gemm);
        return TLOB_ERR_POLICY;
    }
    int used = reason ? snprintf(reason, size, "tuned: %s; ", why) : 0;
    bool room = used > 0 && (size_t)used < size;
    tlob_default_decide(device, gemm, method, room ? reason + used : NULL, room ? size - (size_t)used : 0);
    return TLOB_OK;
}

tlob_status tlob_tuned_decide(const tlob_policy *policy, const tlob_device_info *device, const tlob_gemm *gemm,
                              bool aligned, tlob_method *method, const tlob_table_entry **entry, char *reason,
                              size_t size) {
    char why[160] = "";
    tlob_gemm g = *gemm;
    if (g.compute == TLOB_COMPUTE_DEFAULT) /* only where no context is asked */
        g.compute = TLOB_COMPUTE_TF32;
    if (!tlob_has_product(&g)) { /* no backend is, and so there is nothing to miss */
        tlob_default_decide(device, gemm, method, reason, size);
        return TLOB_OK;
    }
    const tlob_table_entry *found = tlob_table_find(policy->table, &g, device);
    if (found && aligned) {
        *method = found->method;
        *entry = found;
        if (reason)
            snprintf(reason, size, "tuned: %.90s (%.50s%s%.40s)", source_of(found), found->origin.device,
                     *found->origin.library ? "; " : "", found->origin.library);
        return TLOB_OK;
    }
    if (found)
        snprintf(why, sizeof(why), "an operand is not aligned to 16 bytes, and what was measured was");
    else if (reason || policy->strict)
        tlob_table_miss(policy->table, &g, device, why, sizeof(why));
    return decide_miss(policy, device, gemm, why, method, reason, size);
}

tlob_status tlob_tuned_miss(const tlob_context *ctx, const tlob_gemm *gemm, const tlob_table_entry *entry,
                            tlob_method *method, char *reason, size_t size) {
    char why[400];
    snprintf(why, sizeof(why), "%.60s is refused: %.*s", source_of(entry), ctx->settings.policy.strict ? 300 : 90,
             tlob_error_reason());
    return decide_miss(&ctx->settings.policy, tlob_context_device_info(ctx), gemm, why, method, reason, size);
}

void tlob_tuned_warn(tlob_context *ctx, const tlob_table_entry *entry) {
    size_t rank = tlob_table_rank(ctx->settings.policy.table, entry);
    char method[160];
    if (atomic_exchange(&ctx->refusals[rank], 1))
        return;
    tlob_method_print(&entry->method, method, sizeof(method));
    tlob_log(ctx, TLOB_LOG_WARN, "policy tuned: %s (%s) is refused, and its product a miss: %s", source_of(entry),
             method, tlob_last_error()->message);
}
