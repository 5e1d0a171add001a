/* Servers of one C program one after another: a plugin that fails, one that does not, and the built-in one.
 *
 *     hosts CACHE TRAP PLUGIN
 *
 * TRAP is a plugin whose inputs trap.
 */
#include <hydrant_host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, hydrant_host_error());    \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static hydrant_settings settings;
static hydrant_host *host;

static int register_job(void)
{
    hydrant_job job;
    CHECK(hydrant_job_init(&job, 0, "job-1", 1) == HYDRANT_OK);
    return hydrant_host_register_job(host, &job);
}

/* A plugin that fails: every later call fails, too. */
static void fails(const char *plugin, const char *why)
{
    hydrant_output output;
    settings.plugin = plugin;
    CHECK(hydrant_host_open(&settings, &host) == HYDRANT_OK && host != NULL);
    CHECK(register_job() == HYDRANT_ERR_PLUGIN);
    CHECK(strstr(hydrant_host_error(), plugin) && strstr(hydrant_host_error(), why));
    CHECK(hydrant_host_fault() == -1);
    CHECK(hydrant_host_blocked(host, 0) == HYDRANT_ERR_PLUGIN);
    CHECK(strstr(hydrant_host_error(), "an earlier call failed"));
    CHECK(hydrant_host_next(host, &output) == 0);
    hydrant_host_close(host);
}

static void serves(const char *plugin)
{
    static const char INIT[] = "cmd=init pmi_version=1 pmi_subversion=1\n";
    hydrant_output output;
    settings.plugin = plugin;
    CHECK(hydrant_host_open(&settings, &host) == HYDRANT_OK);
    CHECK(register_job() == HYDRANT_OK);
    CHECK(register_job() == HYDRANT_ERR_FAULT && hydrant_host_fault() == HYDRANT_FAULT_JOB_IN_USE);
    CHECK(hydrant_host_opened(host, 0, 0, 0) == HYDRANT_OK);
    CHECK(hydrant_host_bytes(host, 0, INIT, strlen(INIT)) == HYDRANT_OK);
    CHECK(hydrant_host_next(host, &output) == 1 && output.kind == HYDRANT_OUTPUT_JOINED);
    CHECK(hydrant_host_next(host, &output) == 1 && output.kind == HYDRANT_OUTPUT_BYTES);
    CHECK(output.len > 4 && memcmp(output.bytes, "cmd=", 4) == 0);
    CHECK(hydrant_host_next(host, &output) == 0);
    CHECK(hydrant_host_exited(host, 0, 0, HYDRANT_EXIT_SIGNAL, 9) == HYDRANT_OK);
    CHECK(hydrant_host_next(host, &output) == 1 && output.kind == HYDRANT_OUTPUT_ABORT_JOB);
    CHECK(output.cause == HYDRANT_CAUSE_NO_FINALIZE && output.exit == HYDRANT_EXIT_SIGNAL);
    CHECK(output.exit_number == 9);
    hydrant_host_close(host);
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    CHECK(hydrant_settings_init(&settings, HYDRANT_ABI_VERSION, 1) == HYDRANT_OK);
    settings.cache = argv[1];
    settings.plugin = "/nowhere/hydrant.wasm";
    CHECK(hydrant_host_open(&settings, &host) == HYDRANT_ERR_PLUGIN && host == NULL);
    CHECK(strstr(hydrant_host_error(), "/nowhere/hydrant.wasm: cannot be read"));
    fails(argv[2], "trapped");
    serves(argv[3]);
    serves(NULL);
    puts("done");
    return 0;
}
