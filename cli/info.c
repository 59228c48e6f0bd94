// `tlob info`: what this build and this machine have, and the settings in force. Needs no GPU and starts none.
#include "cli/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_backends(void) {
    printf("backends\n");
    for (int i = 0; i < tlob_backend_count(); i++) {
        tlob_backend_info info;
        if (tlob_backend_get_info(i, &info))
            continue;
        printf("  %-15s %-5s %s%s%s\n", info.name, tlob_memory_name(info.caps.memory),
               info.built ? "built in" : "missing: ", info.built ? (*info.version ? ", " : "") : info.missing,
               info.built ? info.version : "");
    }
}

static void print_version(const char *name, int version) {
    if (version)
        printf("  %-15s %d.%d\n", name, version / 1000, version % 1000 / 10);
    else
        printf("  %-15s none\n", name);
}

static void print_devices(void) {
    int driver, runtime, count = 0;
    tlob_cuda_versions(&driver, &runtime);
    printf("CUDA\n");
    print_version("driver", driver);
    print_version("runtime", runtime);
    if (tlob_device_count(&count)) {
        printf("  %-15s none: %s\n", "devices", tlob_last_error()->message);
        return;
    }
    if (!count)
        printf("  %-15s none: the driver works and finds no device\n", "devices");
    for (int i = 0; i < count; i++) {
        tlob_device_info info;
        if (tlob_device_get_info(i, &info))
            printf("  cuda:%-10d %s\n", i, tlob_last_error()->message);
        else
            printf("  cuda:%-10d %s, sm_%d, %d multiprocessors, %.1f GiB\n", i, info.name, info.sm,
                   info.multiprocessors, (double)info.memory_bytes / (1 << 30));
    }
}

// Where a value came from is shown with the variable or the key that it stood in.
static void print_setting(const char *name, const char *value, tlob_origin origin, const char *variable,
                          const char *key) {
    const char *place = origin == TLOB_ORIGIN_ENVIRONMENT ? variable : origin == TLOB_ORIGIN_FILE ? key : NULL;
    printf("  %-15s %-17s %s%s%s%s\n", name, value, tlob_origin_name(origin), place ? " (" : "", place ? place : "",
           place ? ")" : "");
}

// How many entries of a table are for a device and the libraries at hand.
static void print_share(const tlob_table *table, const char *device, const tlob_device_info *info) {
    printf("  %-15s %lld entries are for it and the libraries at hand", device,
           (long long)tlob_table_count(table, info));
    if (tlob_table_count_blocks(table, NULL))
        printf(", and %lld blocks", (long long)tlob_table_count_blocks(table, info));
    printf("\n");
}

// What the table of the settings is good for.
static int print_table(const char *path, tlob_memory memory) {
    tlob_table *table;
    tlob_table_report report;
    tlob_device_info info = {.name = "host"};
    int count = 0;
    if (tlob_table_read(path, &table, &report))
        return cli_tlob_error(NULL);
    printf("table %s\n  %-15s %lld accepted, %lld rejected%s%s\n", path, "entries", (long long)report.accepted,
           (long long)report.rejected, report.rejected ? ", the first: " : "", report.reason);
    if (memory == TLOB_MEMORY_HOST)
        print_share(table, "host", &info);
    else if (!tlob_device_count(&count))
        for (int i = 0; i < count; i++) {
            char device[32];
            snprintf(device, sizeof device, "cuda:%d", i);
            if (!tlob_device_get_info(i, &info))
                print_share(table, device, &info);
        }
    tlob_table_destroy(&table);
    return CLI_OK;
}

// Settings that cannot be had because this build lacks CUDA are information; a wrong variable is a failure.
static int print_settings(const cli_context_options *options) {
    static const char *const levels[] = {"default", "none", "error", "warn", "info", "debug"};
    tlob_settings settings;
    char text[64];
    printf("settings of a %s context\n", tlob_memory_name(options->params.memory));
    tlob_status status = tlob_settings_resolve(&options->params, &settings);
    if (status == TLOB_ERR_NOT_BUILT) {
        printf("  none: %s\n", tlob_last_error()->message);
        return CLI_OK;
    }
    if (status)
        return cli_tlob_error(NULL);
    print_setting("compute", tlob_compute_name(settings.compute), settings.compute_origin, "TLOB_COMPUTE", "compute");
    tlob_policy_print(&settings.policy, text, sizeof text);
    print_setting("policy", text, settings.policy_origin, "TLOB_POLICY", "policy");
    snprintf(text, sizeof text, "%.4g MiB", (double)settings.workspace_bytes / (1 << 20));
    print_setting("workspace", text, settings.workspace_origin, "TLOB_WORKSPACE_MIB", "workspace_mib");
    print_setting("log", levels[settings.log_level], settings.log_level_origin, "TLOB_LOG", "log");
    print_setting("trace", *settings.trace_path ? settings.trace_path : "none", settings.trace_origin, "TLOB_TRACE",
                  "trace");
    print_setting("deterministic", settings.deterministic ? "on" : "off", settings.deterministic_origin,
                  "TLOB_DETERMINISTIC", "deterministic");
    print_setting("table", *settings.table_path ? settings.table_path : "none", settings.table_origin, "TLOB_TABLE",
                  "table");
    print_setting("block plan", settings.block_plan ? tlob_block_plan_name(settings.block_plan) : "by shape",
                  settings.block_plan_origin, "TLOB_BLOCK_PLAN", "block_plan");
    print_setting("config", *settings.config_path ? settings.config_path : "none", settings.config_origin,
                  "TLOB_CONFIG", NULL);
    return *settings.table_path ? print_table(settings.table_path, options->params.memory) : CLI_OK;
}

// Variables that are not ours but change what a product computes or which device is seen.
static void print_overrides(void) {
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
                                        "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && !any)
            printf("variables of the CUDA libraries that are set\n");
        if (value)
            printf("  %s=%s\n", names[i], value);
        any |= value != NULL;
    }
}

static const char doc[] =
    "Shows what this build of tlob contains, what GPUs it sees, and the settings that a context would have."
    "\vEvery backend is listed, built in or not, with the reason and the vendor library's version. Each setting is "
    "shown with where its value came from: an option of this command (argument), a TLOB_* variable (environment), the "
    "configuration file (file), or the default. Without options the settings of both kinds of context are shown.\n"
    "\n"
    "Needs no GPU: why there is none is shown in its place. Exit status 0; 1 if a TLOB_* variable or the "
    "configuration file is not valid.";

static const struct argp_child children[] = {{&cli_context_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state) {
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = state->input;
    return key == ARGP_KEY_INIT ? 0 : cli_no_arguments(key, arg, state);
}

int cli_info(int argc, char **argv) {
    cli_context_options options = {0};
    const struct argp argp = {.parser = parse, .doc = doc, .children = children};
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    printf("tlob %s\n", tlob_version());
    print_backends();
    print_devices();
    int status = print_settings(&options);
    if (!options.device_given && !options.params.compute && !options.params.policy.kind) {
        options.params.memory = TLOB_MEMORY_HOST;
        int second = print_settings(&options);
        status = status ? status : second;
    }
    print_overrides();
    return status;
}
