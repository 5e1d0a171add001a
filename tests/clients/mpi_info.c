/* All MPI_Info functions. With libhydrant_mpi alone, also calls with invalid arguments, which must return errors
 * (HYDRANT_MPI_INITIAL_ERRHANDLER=mpi_errors_return). */
// Test: libraries `mpi::alone::info_objects`
#ifdef STOCK
#include "mpi_check.h"
#else
#include "mpi_own.h"
#endif

// Shows: MPI Info, Objects | case | distinguishes keys and values | done
// Shows: MPI Info, Functions | `MPI_Info_create` | a new object without keys | done
// Shows: MPI Info, Functions | `MPI_Info_delete` | removes a pair | done
// Shows: MPI Info, Functions | `MPI_Info_get_nkeys` | number of keys | done
// Shows: MPI Info, Functions | `MPI_Info_dup` | the same pairs in the same order, in a new object | done
// Shows: MPI Info, Functions | `MPI_Info_free` | frees the object, sets the handle to `MPI_INFO_NULL` | done
// Shows: MPI Sessions, Creation and end | info objects, error handlers | may be created without a session, and used
// in any | done
// Also: libraries `mpi::alone::sessions_hints_and_error_handlers`
static void order_and_numbers(void)
{
    MPI_Info info, copy;
    char key[MPI_MAX_INFO_KEY + 1];
    int count;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 0);
    OK(MPI_Info_set(info, "first", "1"));
    OK(MPI_Info_set(info, "second", "2"));
    OK(MPI_Info_set(info, "First", "other case, other key"));
    OK(MPI_Info_set(info, "second", "  blanks stay  "));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 3);
    const char *names[] = {"first", "second", "First"};
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "first"));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Info_get_nthkey(copy, i, key));
        CHECK(!strcmp(key, names[i]));
    }
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 2);
    OK(MPI_Info_get_nthkey(info, 0, key));
    CHECK(!strcmp(key, "second"));
    OK(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL);
    OK(MPI_Info_free(&copy));
}

// Shows: MPI Info, Functions | `MPI_Info_set` | adds a pair | done
// Shows: MPI Info, Functions | `MPI_Info_set` | replaces the value of a key | done
// Shows: MPI Info, Functions | `MPI_Info_get` `value`, `flag` | the value and true, or false and an unchanged value |
// done
// Shows: MPI Info, Functions | `MPI_Info_get` `valuelen` | a longer value is truncated; the buffer has room for NUL
// besides | done
// Shows: MPI Info, Functions | `MPI_Info_get_valuelen` `valuelen`, `flag` | the length without NUL and true, or false
// and an unchanged length | done
static void values(void)
{
    MPI_Info info;
    char value[16];
    int found, length;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "  blanks stay  "));
    OK(MPI_Info_get_valuelen(info, "key", &length, &found));
    CHECK(found && length == 15);
    length = 77;
    OK(MPI_Info_get_valuelen(info, "Key", &length, &found));
    CHECK(!found && length == 77);
    memset(value, '#', sizeof value);
    length = 0;
    OK(MPI_Info_get_string(info, "key", &length, value, &found));
    CHECK(found && length == 16 && value[0] == '#');
    length = 5;
    OK(MPI_Info_get_string(info, "key", &length, value, &found));
    CHECK(found && length == 16 && !strcmp(value, "  bl") && value[5] == '#');
    length = 16;
    OK(MPI_Info_get_string(info, "key", &length, value, &found));
    CHECK(found && length == 16 && !strcmp(value, "  blanks stay  "));
    length = 9;
    OK(MPI_Info_get_string(info, "none", &length, value, &found));
    CHECK(!found && length == 9 && !strcmp(value, "  blanks stay  "));
    memset(value, '#', sizeof value);
#ifndef STOCK
    /* MPICH returns an error for a value that does not fit. */
    OK(MPI_Info_get(info, "key", 4, value, &found));
    CHECK(found && !strcmp(value, "  bl") && value[5] == '#');
    OK(MPI_Info_get(info, "key", 0, value, &found));
    CHECK(found && !strcmp(value, ""));
#endif
    OK(MPI_Info_get(info, "key", 15, value, &found));
    CHECK(found && !strcmp(value, "  blanks stay  "));
    OK(MPI_Info_get(info, "none", 15, value, &found));
    CHECK(!found && !strcmp(value, "  blanks stay  "));
    OK(MPI_Info_set(info, "key", "other"));
    OK(MPI_Info_get(info, "key", 15, value, &found));
    CHECK(found && !strcmp(value, "other"));
    OK(MPI_Info_free(&info));
}

// Shows: MPI Info, Objects | returned keys and values | never longer than these | done
static void longest(void)
{
    MPI_Info info;
    char key[256], value[1025], back[1025], name[MPI_MAX_INFO_KEY + 1];
    int found, length = sizeof back;
    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    /* MPICH counts the NUL. */
    key[254] = value[1023] = 0;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    OK(MPI_Info_get_string(info, key, &length, back, &found));
    CHECK(found && length == 1024 && !strcmp(back, value));
    OK(MPI_Info_get_nthkey(info, 0, name));
    CHECK(!strcmp(name, key));
    OK(MPI_Info_free(&info));
}

static void environment(char **argv)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    int found, length = sizeof value, count = 0;
    while (argv[count])
        count++;
    OK(MPI_Info_create_env(count, argv, &info));
    OK(MPI_Info_get_string(info, "command", &length, value, &found));
    CHECK(!found || strstr(argv[0], value) || strstr(value, "mpi_info"));
    OK(MPI_Info_free(&info));
}

#ifndef STOCK
static void own_environment(char **argv)
{
    char value[MPI_MAX_INFO_VAL + 1], here[1024];
    MPI_Info copy, info[] = {MPI_INFO_ENV, MPI_INFO_NULL, MPI_INFO_NULL};
    char *other[] = {"prog", "two words", "x", NULL};
    int found, length;
    OK(MPI_Info_create_env(0, NULL, &info[1]));
    OK(MPI_Info_create_env(3, other, &info[2]));
    for (int i = 0; i < 3; i++) {
        const char *command = i == 2 ? "prog" : argv[0], *args = i == 2 ? "two words x" : argv[1];
        length = sizeof value;
        OK(MPI_Info_get_string(info[i], "command", &length, value, &found));
        CHECK(found && !strcmp(value, command));
        length = sizeof value;
        OK(MPI_Info_get_string(info[i], "argv", &length, value, &found));
        CHECK(found == (args != NULL) && (!found || !strcmp(value, args)));
        length = sizeof value;
        OK(MPI_Info_get_string(info[i], "wdir", &length, value, &found));
        CHECK(found && getcwd(here, sizeof here) && !strcmp(value, here));
        length = sizeof value;
        OK(MPI_Info_get_string(info[i], "maxprocs", &length, value, &found));
        CHECK(found && !strcmp(value, getenv("PROCESSES") ? getenv("PROCESSES") : "1"));
    }
    CHECK(MPI_Info_set(MPI_INFO_ENV, "key", "value") == MPI_ERR_INFO);
    CHECK(MPI_Info_free(&info[0]) == MPI_ERR_INFO && info[0] == MPI_INFO_ENV);
    OK(MPI_Info_dup(MPI_INFO_ENV, &copy));
    OK(MPI_Info_set(copy, "key", "value"));
    OK(MPI_Info_free(&copy));
    OK(MPI_Info_free(&info[1]));
    OK(MPI_Info_free(&info[2]));
}

// Shows: MPI Info, Objects | any key | is kept, also if no function knows it | done: as many as memory has room for
// Also: hydrant-mpi `lengths_have_limits_and_the_number_of_pairs_has_none`
// Shows: MPI Info, Functions | `MPI_Info_set` | `MPI_ERR_INFO_KEY`, `MPI_ERR_INFO_VALUE` for lengths beyond the
// limits | done
// Shows: MPI Info, Functions | `MPI_Info_delete` | `MPI_ERR_INFO_NOKEY` for a missing key | done: also for one that
// is empty or too long
// Shows: MPI Info, Functions | `MPI_Info_get`, `_get_valuelen` | a key beyond the limit is erroneous | done:
// `MPI_ERR_INFO_KEY`
// Shows: MPI Info, Functions | `MPI_Info_get_nthkey` | keys numbered from 0 | done: `MPI_ERR_ARG` for other numbers
// Shows: MPI Info, Objects | `MPI_MAX_INFO_KEY` | 32 to 255 characters | done: 255. The constant is 256 in C, an
// array length with NUL, as in the standard ABI, and 255 in Fortran
// Also: libraries `mpi::alone::the_header_is_the_standard_abi_s`
// Shows: MPI Info, Objects | `MPI_MAX_INFO_VAL` | longest value | done: 1,024
static void wrong_calls(void)
{
    MPI_Info info, gone;
    char key[257], value[1026], buffer[MPI_MAX_INFO_KEY + 1];
    int found, length = 8, count;
    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    key[256] = value[1025] = 0;
    OK(MPI_Info_create(&info));
    CHECK(MPI_Info_set(info, key, "v") == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_set(info, "", "v") == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_set(info, NULL, "v") == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_set(info, "k", value) == MPI_ERR_INFO_VALUE);
    CHECK(MPI_Info_set(info, "k", NULL) == MPI_ERR_INFO_VALUE);
    CHECK(MPI_Info_get_string(info, key, &length, buffer, &found) == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_get(info, key, 8, buffer, &found) == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_get_valuelen(info, key, &length, &found) == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_delete(info, "k") == MPI_ERR_INFO_NOKEY);
    /* No object has these keys. */
    CHECK(MPI_Info_delete(info, key) == MPI_ERR_INFO_NOKEY);
    CHECK(MPI_Info_delete(info, "") == MPI_ERR_INFO_NOKEY);
    CHECK(MPI_Info_delete(info, NULL) == MPI_ERR_INFO_KEY);
    /* An empty key is not longer than MPI_MAX_INFO_KEY. */
    found = 1;
    OK(MPI_Info_get(info, "", 8, buffer, &found));
    CHECK(!found);
    CHECK(MPI_Info_get_nthkey(info, 0, buffer) == MPI_ERR_ARG);
    CHECK(MPI_Info_get_nthkey(info, -1, buffer) == MPI_ERR_ARG);
    key[255] = value[1024] = 0;
    OK(MPI_Info_set(info, key, value));
    CHECK(MPI_Info_get(info, key, -1, buffer, &found) == MPI_ERR_ARG);
    CHECK(MPI_Info_get_string(info, key, NULL, buffer, &found) == MPI_ERR_ARG);
    CHECK(MPI_Info_get_string(info, key, &length, NULL, &found) == MPI_ERR_ARG);
    CHECK(MPI_Info_get_string(info, key, &length, buffer, NULL) == MPI_ERR_ARG);
    OK(MPI_Info_get_nthkey(info, 0, buffer));
    CHECK(!strcmp(buffer, key));
    for (int more = 0; more < 5000; more++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", more);
        OK(MPI_Info_set(info, name, value));
    }
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 5001);
    OK(MPI_Info_get_nthkey(info, 5000, buffer));
    CHECK(!strcmp(buffer, "k4999"));
    CHECK(MPI_Info_create(NULL) == MPI_ERR_ARG);
    CHECK(MPI_Info_set(MPI_INFO_NULL, "k", "v") == MPI_ERR_INFO);
    gone = info;
    OK(MPI_Info_free(&info));
    CHECK(MPI_Info_set(gone, "k", "v") == MPI_ERR_INFO);
    CHECK(MPI_Info_free(&gone) == MPI_ERR_INFO);
    MPI_Session session;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(MPI_Info_set((MPI_Info)session, "k", "v") == MPI_ERR_INFO);
    OK(MPI_Session_finalize(&session));
}
#endif

int main(int argc, char **argv)
{
    (void)argc;
    order_and_numbers();
    values();
    longest();
    environment(argv);
#ifndef STOCK
    own_environment(argv);
    wrong_calls();
#endif
    SAY("info is well");
    return 0;
}
