/* Number of the processes of a set, for MPI 4. Comes after a header with CHECK and OK. */
static int size_of_pset(MPI_Session session, const char *name)
{
    MPI_Info info;
    char value[32];
    int found, length = sizeof value;
    OK(MPI_Session_get_pset_info(session, name, &info));
    OK(MPI_Info_get_string(info, "mpi_size", &length, value, &found));
    CHECK(found);
    OK(MPI_Info_free(&info));
    return atoi(value);
}
