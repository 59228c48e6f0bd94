/* Results in words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parity/report.h"

const char *parity_verdict_name(parity_verdict verdict) {
    static const char *const names[PARITY_VERDICTS] = {"pass", "warn", "fail", "error", "unsupported"};
    return (unsigned)verdict < PARITY_VERDICTS ? names[verdict] : "none";
}

bool parity_report(const parity_who *who, parity_result *result, parity_verdict verdict, const char *format, ...) {
    size_t size = sizeof(result->message);
    char method[160] = "";
    result->verdict = verdict;
    if (who->method)
        tlob_method_print(who->method, method, sizeof(method));
    int used = snprintf(result->message, size, "%s on %s: ", who->c->name, who->method ? method : who->backend);
    va_list args;
    va_start(args, format);
    used += vsnprintf(result->message + used, size - (size_t)used, format, args);
    va_end(args);
    if ((verdict == PARITY_FAIL || verdict == PARITY_ERROR) && (size_t)used < size && !who->method)
        snprintf(result->message + used, size - (size_t)used,
                 "\n  replay: tlob parity --backend %s --compute %s --filter '%s' --seed %llu%s", who->backend,
                 tlob_compute_name(who->compute), who->c->name, (unsigned long long)who->seed,
                 who->c->huge ? " --huge" : "");
    return false;
}

bool parity_report_call(const parity_who *who, parity_result *result, const char *what) {
    return parity_report(who, result, PARITY_ERROR, "%s: %s", what, tlob_last_error()->message);
}

bool parity_report_product(const parity_who *who, parity_result *result, tlob_stream *stream, const tlob_gemm *gemm,
                           const tlob_gemm_operands *x, tlob_status status) {
    if (status != TLOB_ERR_UNSUPPORTED)
        return parity_report_call(who, result, "product");
    tlob_error refusal = *tlob_last_error();
    tlob_explanation explanation;
    if (tlob_gemm_explain(stream, gemm, x, &explanation) != TLOB_OK)
        return parity_report_call(who, result, "explain");
    for (int i = 0; i < explanation.candidates; i++) {
        const tlob_candidate *candidate = &explanation.candidate[i];
        if (strcmp(candidate->backend, who->backend))
            continue;
        if (!candidate->able)
            return parity_report(who, result, PARITY_UNSUPPORTED, "%s", candidate->why);
        return parity_report(who, result, PARITY_FAIL, "supports() said yes, and then it refused: %s", refusal.message);
    }
    return parity_report(who, result, PARITY_FAIL, "it refused, and is no candidate: %s", refusal.message);
}
