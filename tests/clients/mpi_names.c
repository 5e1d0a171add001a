/* Names and ports.
 *
 *   inside            publish, look up and unpublish in one job, with invalid arguments
 *   publish NAME      publishes a port, accepts one connection at it, and unpublishes it
 *   lookup NAME       connects to the port of that name
 *   gone NAME         a name that is not published (any more)
 *   leave NAME        publishes a name and exits without unpublishing it
 *   accept FILE       writes a port to a file and accepts one connection at it
 *   connect FILE      connects to the port in the file
 */
#include "mpi_check.h"

/* MPICH over UCX has ports longer than MPI_MAX_PORT_NAME and needs the size of the buffer. */
#define PORT_SIZE 1024

static MPI_Info room;

static const char *name_of(int rc)
{
    int class;
    OK(MPI_Error_class(rc, &class));
    return class == MPI_SUCCESS       ? "success"
           : class == MPI_ERR_NAME    ? "name"
           : class == MPI_ERR_SERVICE ? "service"
           : class == MPI_ERR_PORT    ? "port"
                                      : "other";
}

static void inside(int rank)
{
    char port[PORT_SIZE] = "tag#0$description#a;b[2]$x=y$", found[PORT_SIZE] = "";
    const char *first = "none", *second = "none", *unpublished = "none";
    if (rank == 0) {
        first = name_of(MPI_Publish_name("hydrant-name", MPI_INFO_NULL, port));
        second = name_of(MPI_Publish_name("hydrant-name", MPI_INFO_NULL, "other-port"));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Lookup_name("hydrant-name", room, found));
    CHECK(!strcmp(found, port));
    const char *unknown = name_of(MPI_Lookup_name("no-such-name", room, found));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        OK(MPI_Unpublish_name("hydrant-name", MPI_INFO_NULL, port));
        unpublished = name_of(MPI_Unpublish_name("hydrant-name", MPI_INFO_NULL, port));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    const char *after = name_of(MPI_Lookup_name("hydrant-name", room, found));
    SAY("rank %d: published %s, again %s, unknown %s, unpublished again %s, after %s", rank, first, second, unknown,
        unpublished, after);
}

/* Both sides exchange their numbers of processes and disconnect. */
static void meet(MPI_Comm other, const char *who)
{
    int rank = rank_in(other), one = 1, sum = 0, remote;
    char word[16] = "", theirs[16] = "";
    MPI_Comm all;
    OK(MPI_Comm_remote_size(other, &remote));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other));
    CHECK(sum == remote);
    if (rank == 0) {
        strcpy(word, who);
        OK(MPI_Sendrecv(word, 16, MPI_CHAR, 0, 1, theirs, 16, MPI_CHAR, 0, 1, other, MPI_STATUS_IGNORE));
        SAY("%s of %d met %s of %d", word, size_of(other), theirs, remote);
    }
    OK(MPI_Intercomm_merge(other, !strcmp(who, "client"), &all));
    CHECK(size_of(all) == remote + size_of(other));
    OK(MPI_Barrier(all));
    OK(MPI_Comm_free(&all));
    OK(MPI_Comm_disconnect(&other));
}

static void serve(int rank, const char *name, const char *file)
{
    char port[PORT_SIZE] = "";
    MPI_Comm client;
    if (rank == 0) {
        OK(MPI_Open_port(room, port));
        if (name)
            OK(MPI_Publish_name(name, MPI_INFO_NULL, port));
        if (file) {
            FILE *out = fopen(file, "w");
            CHECK(out && fputs(port, out) >= 0 && fclose(out) == 0);
        }
        SAY("port open");
    }
    OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &client));
    meet(client, "server");
    if (rank == 0) {
        if (name)
            OK(MPI_Unpublish_name(name, MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    }
}

static void join(int rank, const char *name, const char *file)
{
    char port[PORT_SIZE] = "";
    MPI_Comm server;
    if (rank == 0 && name)
        OK(MPI_Lookup_name(name, room, port));
    if (rank == 0 && file) {
        FILE *in = fopen(file, "r");
        CHECK(in && fgets(port, sizeof port, in) && fclose(in) == 0);
    }
    OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server));
    meet(server, "client");
}

int main(int argc, char **argv)
{
    OK(MPI_Init(&argc, &argv));
    int rank = rank_in(MPI_COMM_WORLD);
    char found[PORT_SIZE];
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Info_create(&room));
    OK(MPI_Info_set(room, "port_name_size", "1024"));
    CHECK(argc > 1);
    const char *what = argv[1], *to = argc > 2 ? argv[2] : NULL;
    if (!strcmp(what, "inside"))
        inside(rank);
    else if (!strcmp(what, "publish"))
        serve(rank, to, NULL);
    else if (!strcmp(what, "accept"))
        serve(rank, NULL, to);
    else if (!strcmp(what, "lookup"))
        join(rank, to, NULL);
    else if (!strcmp(what, "connect"))
        join(rank, NULL, to);
    else if (!strcmp(what, "gone"))
        SAY("lookup: %s", name_of(MPI_Lookup_name(to, room, found)));
    else if (!strcmp(what, "leave"))
        OK(MPI_Publish_name(to, MPI_INFO_NULL, "left"));
    else
        CHECK(!"a known way");
    OK(MPI_Info_free(&room));
    OK(MPI_Finalize());
    return 0;
}
