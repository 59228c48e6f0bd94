// `tlob table verify`: whether every entry is sound.
#include "cli/table.h"

static void print_rejected(void *user, const tlob_table_entry *entry) {
    (void)user;
    if (entry->rejected)
        printf("REJECTED %s: %s\n", entry->source, entry->rejected);
}

int cli_table_verify(const cli_table_options *options) {
    int status = CLI_OK;
    for (int i = 0; i < options->n_files; i++) {
        cli_table_file file = {NULL};
        if (!cli_table_read(options->files[i], &file)) {
            status = CLI_FAILED;
            continue;
        }
        tlob_table_list(file.table, print_rejected, NULL);
        cli_table_print_report(&file);
        status = file.report.rejected ? CLI_FAILED : status;
        tlob_table_destroy(&file.table);
    }
    return status;
}
